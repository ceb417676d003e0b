//! The table for people, and the same as JSON.

use std::{fmt, fs, path::Path};

use anyhow::{Context as _, Result};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::{
    conditions::Conditions,
    row::{Row, Target},
    rows::Part,
};

/// All that was measured.
#[derive(Serialize)]
pub(crate) struct Report {
    conditions: Conditions,
    rows: Vec<Judged>,
}

#[derive(Serialize)]
struct Judged {
    part: String,
    #[serde(flatten)]
    row: Row,
    met: Option<bool>,
}

impl Report {
    pub(crate) fn new(conditions: Conditions) -> Self {
        Self {
            conditions,
            rows: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, part: Part, rows: Vec<Row>) {
        self.rows.extend(rows.into_iter().map(|row| Judged {
            part: part.to_string(),
            met: row.met(),
            row,
        }));
    }

    /// Writes it as JSON.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, json + "\n").with_context(|| format!("could not write {}", file.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["row", "unit", "floor", "ours", "ratio", "target", "met"]);
        for Judged { row, met, .. } in &self.rows {
            table.add_row([
                Cell::new(&row.name),
                Cell::new(row.unit),
                number(row.floor.map_or_else(String::new, figure)),
                number(figure(row.ours)),
                number(
                    row.ratio
                        .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                ),
                number(target(row.target)),
                Cell::new(match met {
                    Some(true) => "yes",
                    Some(false) => "NO",
                    None => "",
                }),
            ]);
        }
        writeln!(f, "{}\n\n{table}", self.conditions)?;
        for Judged { row, .. } in self
            .rows
            .iter()
            .filter(|judged| !judged.row.notes.is_empty())
        {
            write!(f, "\n{}: {}", row.name, row.notes.join("; "))?;
        }
        Ok(())
    }
}

fn number(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// A figure with as many places as mean something.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn target(target: Target) -> String {
    match target {
        Target::AtLeast(bound) => format!("≥ {bound}"),
        Target::AtMost(bound) => format!("≤ {bound}"),
        Target::Below(bound) => format!("< {bound}"),
        Target::None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_places_that_mean_something() {
        assert_eq!(figure(7_123.4), "7123");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(1.234), "1.23");
        assert_eq!(figure(0.1234), "0.123");
    }

    #[test]
    fn the_json_says_what_was_asked_and_whether_it_was_met() {
        let row = Row::against("latency", "ms", 1.0, 1.5).target(Target::AtMost(1.3));
        let judged = Judged {
            part: Part::Latency.to_string(),
            met: row.met(),
            row,
        };
        let json = serde_json::to_value(&judged).unwrap();
        assert_eq!(json["target"], serde_json::json!({ "at_most": 1.3 }));
        assert_eq!(json["part"], "latency");
        assert_eq!(json["ratio"], 1.5);
        assert_eq!(json["met"], false);
    }
}
