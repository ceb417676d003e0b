//! How large things may become. Everything is checked before it is written, so that no document can break the robot.

use bson::Bson;

use crate::record::{Command, MilestoneRecord, Order};

/// The limits of stored milestones, in bytes where nothing else is said.
///
/// ```
/// use milestone_core::limits::Limits;
///
/// let limits = Limits::new().output(64 * 1024);
/// assert_eq!((limits.output, limits.parameters), (64 * 1024, 4 * 1024 * 1024));
/// ```
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

/// A value that cannot be stored: it is too large or too deep, or BSON cannot hold it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// It is too large.
    #[error("{what} would take {size} bytes, the limit `{limit_name}` is {limit}")]
    Size {
        /// What is too large.
        what: String,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
        /// The limit's name.
        limit_name: &'static str,
    },
    /// It is nested too deeply.
    #[error("{what} would be nested more than {MAX_DEPTH} levels deep, which is the limit `depth`")]
    Depth {
        /// What is too deep.
        what: String,
    },
    /// A key in it holds a NUL character, which ends a key in BSON.
    #[error("{what} would have the key {key:?}: a key cannot hold a NUL character")]
    Key {
        /// What holds the key.
        what: String,
        /// The key, or the beginning of it.
        key: String,
    },
}

impl LimitError {
    /// A stable code, for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Size { .. } => "limit_size",
            Self::Depth { .. } => "limit_depth",
            Self::Key { .. } => "limit_key",
        }
    }
}

/// Checks a value against a limit of its size in bytes, and against [`MAX_DEPTH`], and gives its size. `what` names it in the error.
///
/// ```
/// use bson::doc;
/// use milestone_core::limits::check_value;
///
/// let value = doc! { "text": "x".repeat(100) }.into();
/// assert!(check_value("the output of `debit`", &value, 1024, "output").is_ok());
/// let error = check_value("the output of `debit`", &value, 100, "output").unwrap_err();
/// assert_eq!(error.to_string(), "the output of `debit` would take 116 bytes, the limit `output` is 100");
/// ```
///
/// # Errors
/// [`LimitError`], naming what it is.
pub fn check_value(
    what: &str,
    value: &Bson,
    limit: usize,
    limit_name: &'static str,
) -> Result<usize, LimitError> {
    check_inside(what, value)?;
    check_size(
        || what.to_owned(),
        crate::patch::size_of_value(value),
        limit,
        limit_name,
    )
}

fn check_size(
    what: impl FnOnce() -> String,
    size: usize,
    limit: usize,
    limit_name: &'static str,
) -> Result<usize, LimitError> {
    if size <= limit {
        return Ok(size);
    }
    Err(LimitError::Size {
        what: what(),
        size,
        limit,
        limit_name,
    })
}

/// Checks a command before it is put into an inbox, so that an inbox is bounded in bytes too.
///
/// # Errors
/// [`LimitError`] if its output is larger than an output may be, or its texts are longer than a message.
pub fn check_command(command: &Command, limits: &Limits) -> Result<usize, LimitError> {
    let output = match &command.order {
        Order::Resolve { output, .. } => {
            check_value("the output", output, limits.output, "output")?
        }
        _ => 0,
    };
    let texts = [&command.id, &command.by].into_iter();
    let texts = texts.chain(match &command.order {
        Order::Cancel { reason } | Order::Pause { reason } => Some(reason),
        Order::Resolve { action, .. } | Order::Waive { action } => Some(action),
        Order::Resume | Order::Retry => None,
    });
    let what = || format!("the command `{}`", command.order.name());
    let texts = check_size(
        what,
        texts.map(String::len).sum(),
        limits.message,
        "message",
    )?;
    Ok(output + texts + 128)
}

/// Checks the whole document of a new milestone.
///
/// # Errors
/// [`LimitError`].
pub fn check_new(record: &MilestoneRecord, limits: &Limits) -> Result<usize, LimitError> {
    let what = format!("the parameters of `{}`", record.kind);
    let parameters = check_value(&what, &record.parameters, limits.parameters, "parameters")?;
    let actions: usize = record.actions.iter().map(action_size).sum();
    let labels = record.labels.iter();
    let labels: usize = labels
        .map(|(name, value)| 16 + name.len() + value.len())
        .sum();
    let what = || format!("the document of `{}`", record.kind);
    let size = 1024 + parameters + actions + labels;
    check_size(what, size, limits.document, "document")
}

fn action_size(action: &crate::record::ActionRecord) -> usize {
    let names = action.name.len()
        + action.method.as_deref().map_or(0, str::len)
        + action.queue.as_deref().map_or(0, str::len)
        + action
            .undo
            .as_ref()
            .map_or(0, |undo| undo.method.len() + 64);
    let verify = action
        .verify
        .as_ref()
        .map_or(0, |verify| verify.method.len() + 64);
    160 + names + verify + action.after.len() * 10
}

/// Checks the depth and the keys, without recursion, so that a deep value needs no deep stack.
fn check_inside(what: &str, value: &Bson) -> Result<(), LimitError> {
    let mut rest = vec![(value, 0)];
    while let Some((value, depth)) = rest.pop() {
        if depth > MAX_DEPTH {
            return Err(LimitError::Depth {
                what: what.to_owned(),
            });
        }
        let fields = match value {
            Bson::Array(items) => {
                rest.extend(items.iter().map(|item| (item, depth + 1)));
                continue;
            }
            Bson::Document(document) => document,
            Bson::JavaScriptCodeWithScope(code) => &code.scope,
            _ => continue,
        };
        for (key, item) in fields {
            if key.contains('\0') {
                return Err(LimitError::Key {
                    what: what.to_owned(),
                    key: key.chars().take(64).collect(),
                });
            }
            rest.push((item, depth + 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
