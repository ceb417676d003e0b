//! How the program ends.

use std::io;

use anstream::eprintln;
use milestone_runtime::CommandError;

use crate::{style::BAD, text::visible_lines};

/// The exit codes, as `--help` states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The database does not answer, a document cannot be read, and what else can go wrong.
    Error = 1,
    /// There is no such milestone.
    NotFound = 3,
    /// The milestone's state does not accept the command, or a worker says why it cannot be done.
    Refused = 4,
    /// The command is in the inbox, and no worker has answered yet.
    Unanswered = 5,
    /// `doctor` has found something.
    Unhealthy = 6,
}

/// What `--help` says of it.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done
  1  an error: the database does not answer, a document cannot be read, ..
  2  the command line is wrong, or a confirmation is missing
  3  there is no such milestone
  4  refused: the state does not accept it, or a worker says why it cannot be done
  5  sent, but not answered in time: the command stays in the inbox and will be carried out
  6  `doctor` has found something
If several milestones are meant, the first of 1, 4, 3, 5 that any of them gives.";

/// An error that has an exit code of its own.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    text: String,
}

impl Failure {
    pub(crate) fn error(exit: Exit, text: impl Into<String>) -> anyhow::Error {
        let text = text.into();
        Self { exit, text }.into()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// The exit code of a command that failed.
pub(crate) const fn of_command(error: &CommandError) -> Exit {
    match error {
        CommandError::State { .. } | CommandError::Refused { .. } | CommandError::Full { .. } => {
            Exit::Refused
        }
        CommandError::Removed { .. } => Exit::NotFound,
        _ => Exit::Error,
    }
}

/// Tells an error, and how the program ends with it.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // Whoever read has seen enough: `milestone list | head`.
    if error.chain().any(broken_pipe) {
        return Exit::Done;
    }
    let text = format!("{error:#}");
    eprintln!("{BAD}error:{BAD:#} {}", visible_lines(&text));
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.exit;
    }
    error
        .downcast_ref::<CommandError>()
        .map_or(Exit::Error, of_command)
}
