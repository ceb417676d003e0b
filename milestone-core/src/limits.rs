//! How large things may become. Everything is checked before it is written, so that no document can break the robot.

use crate::record::MilestoneRecord;

/// The limits of stored milestones, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The output of one action. Default 1 MiB.
    pub output: usize,
    /// The parameters of a milestone. Default 4 MiB.
    pub parameters: usize,
    /// The whole document; the database's own limit is 16 MiB. Default 12 MiB.
    pub document: usize,
    /// All attempts in the report. Default 256 KiB.
    pub report: usize,
    /// The attempts of one action in the report. Default 32 KiB.
    pub action_report: usize,
    /// The message of an error. Default 4 KiB.
    pub message: usize,
    /// A backtrace. Default 16 KiB; only the first attempt and the newest ones of an action keep theirs.
    pub backtrace: usize,
}

impl Limits {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        const KIB: usize = 1024;
        Self {
            output: 1024 * KIB,
            parameters: 4 * 1024 * KIB,
            document: 12 * 1024 * KIB,
            report: 256 * KIB,
            action_report: 32 * KIB,
            message: 4 * KIB,
            backtrace: 16 * KIB,
        }
    }

    /// Sets the limit of an action's output.
    #[must_use]
    pub const fn output(mut self, bytes: usize) -> Self {
        self.output = bytes;
        self
    }

    /// Sets the limit of a milestone's parameters.
    #[must_use]
    pub const fn parameters(mut self, bytes: usize) -> Self {
        self.parameters = bytes;
        self
    }

    /// Sets the limit of a whole document.
    #[must_use]
    pub const fn document(mut self, bytes: usize) -> Self {
        self.document = bytes;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

/// How many commands an inbox holds.
pub const MAX_INBOX: usize = 256;

/// How many answers are kept.
pub const MAX_ANSWERS: usize = 32;

/// How deep parameters and outputs may be nested. Servers take 100 levels in a document for sure, and the values stand three deep.
pub const MAX_DEPTH: usize = 90;

/// Something is too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has {size} {unit}, the limit `{limit_name}` is {limit}")]
pub struct LimitError {
    /// What is too large.
    pub what: String,
    /// Its size.
    pub size: usize,
    /// What it is measured in.
    pub unit: &'static str,
    /// The limit.
    pub limit: usize,
    /// The limit's name.
    pub limit_name: &'static str,
}

impl LimitError {
    /// A stable code, for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "limit"
    }
}

/// Checks a value against a limit of its size, and against [`MAX_DEPTH`].
///
/// # Errors
/// [`LimitError`], naming what it is.
pub fn check_value(
    what: &str,
    value: &bson::Bson,
    limit: usize,
    limit_name: &'static str,
) -> Result<usize, LimitError> {
    let depth = depth_of(value);
    if depth > MAX_DEPTH {
        return Err(LimitError {
            what: what.to_owned(),
            size: depth,
            unit: "levels",
            limit: MAX_DEPTH,
            limit_name: "depth",
        });
    }
    let size = crate::patch::size_of_value(value);
    if size > limit {
        return Err(LimitError {
            what: what.to_owned(),
            size,
            unit: "bytes",
            limit,
            limit_name,
        });
    }
    Ok(size)
}

/// Checks the whole document of a new milestone.
///
/// # Errors
/// [`LimitError`].
pub fn check_new(record: &MilestoneRecord, limits: &Limits) -> Result<usize, LimitError> {
    let what = format!("the parameters of `{}`", record.kind);
    let parameters = check_value(&what, &record.parameters, limits.parameters, "parameters")?;
    let actions: usize = record.actions.iter().map(action_size).sum();
    let size = 1024 + parameters + actions;
    if size > limits.document {
        return Err(LimitError {
            what: format!("the document of `{}`", record.kind),
            size,
            unit: "bytes",
            limit: limits.document,
            limit_name: "document",
        });
    }
    Ok(size)
}

fn action_size(action: &crate::record::ActionRecord) -> usize {
    let names = action.name.len()
        + action.method.as_deref().map_or(0, str::len)
        + action.queue.as_deref().map_or(0, str::len)
        + action
            .undo
            .as_ref()
            .map_or(0, |undo| undo.method.len() + 64);
    160 + names + action.after.len() * 10
}

/// How deep a value is nested: 0 for a scalar. Stops counting far above the limit, so that it needs little stack.
fn depth_of(value: &bson::Bson) -> usize {
    let mut deepest = 0;
    let mut rest = vec![(value, 0)];
    while let Some((value, depth)) = rest.pop() {
        deepest = deepest.max(depth);
        if depth > MAX_DEPTH {
            break;
        }
        match value {
            bson::Bson::Array(items) => rest.extend(items.iter().map(|item| (item, depth + 1))),
            bson::Bson::Document(document) => {
                rest.extend(document.iter().map(|(_, item)| (item, depth + 1)))
            }
            _ => {}
        }
    }
    deepest
}
