//! One line of the table: what was measured, against what, and whether that is enough.

use serde::Serialize;

/// What a row's figure must be: the ratio where there is a floor, else the figure itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// This much or more.
    AtLeast(f64),
    /// This much or less.
    AtMost(f64),
    /// Less than this.
    Below(f64),
    /// Measured for information.
    None,
}

impl Target {
    /// Whether a figure meets it; nothing where nothing was asked.
    fn judge(self, figure: f64) -> Option<bool> {
        match self {
            Self::AtLeast(bound) => Some(figure >= bound),
            Self::AtMost(bound) => Some(figure <= bound),
            Self::Below(bound) => Some(figure < bound),
            Self::None => None,
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// What the raw driver needs or makes for the same writes, in `unit`.
    pub(crate) floor: Option<f64>,
    /// What milestones need or make, in `unit`.
    pub(crate) ours: f64,
    pub(crate) unit: &'static str,
    /// Ours divided by the floor.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Target,
    /// What the floor does, and what else one must know to read the figures.
    pub(crate) notes: Vec<String>,
}

impl Row {
    /// A figure beside that of the raw driver.
    pub(crate) fn against(
        name: impl Into<String>,
        unit: &'static str,
        floor: f64,
        ours: f64,
    ) -> Self {
        Self {
            floor: Some(floor),
            ratio: Some(ours / floor),
            ..Self::alone(name, unit, ours)
        }
    }

    /// A figure without a floor.
    pub(crate) fn alone(name: impl Into<String>, unit: &'static str, ours: f64) -> Self {
        Self {
            name: name.into(),
            floor: None,
            ours,
            unit,
            ratio: None,
            target: Target::None,
            notes: Vec::new(),
        }
    }

    /// What is asked of it.
    pub(crate) fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Something to know about it.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Whether it is what was asked; nothing where nothing was asked.
    pub(crate) fn met(&self) -> Option<bool> {
        self.target.judge(self.ratio.unwrap_or(self.ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_judged_where_there_is_a_floor() {
        let row = Row::against("throughput", "milestones/s", 2_000.0, 1_500.0);
        assert_eq!(row.ratio, Some(0.75));
        assert_eq!(row.met(), None);
        assert_eq!(row.clone().target(Target::AtLeast(0.75)).met(), Some(true));
        assert_eq!(row.target(Target::AtLeast(0.76)).met(), Some(false));
    }

    #[test]
    fn the_figure_is_judged_where_there_is_none() {
        let row = Row::alone("p99", "ms", 50.0);
        assert_eq!(row.clone().target(Target::AtMost(50.0)).met(), Some(true));
        assert_eq!(row.target(Target::Below(50.0)).met(), Some(false));
    }

    #[test]
    fn what_is_no_number_meets_nothing() {
        let row = Row::against("throughput", "milestones/s", 0.0, 0.0);
        assert_eq!(row.clone().target(Target::AtLeast(0.5)).met(), Some(false));
        assert_eq!(row.target(Target::AtMost(0.5)).met(), Some(false));
    }
}
