//! Colours and symbols of states. What is written in colour is stripped of it where nobody sees it.

use anstyle::{AnsiColor, Style};
use milestone_runtime::{
    Status,
    core::record::{ActionState, UndoState},
};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BUSY: Style = AnsiColor::Cyan.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const ODD: Style = AnsiColor::Magenta.on_default();

pub(crate) const fn of_status(status: Status) -> Style {
    match status {
        Status::Completed => GOOD,
        Status::Running => BUSY,
        Status::Waiting => WARN,
        Status::InDoubt | Status::Failed => BAD,
        Status::Undoing | Status::Undone => ODD,
        Status::Cancelled => DIM,
        _ => PLAIN,
    }
}

pub(crate) const fn of_action(state: ActionState) -> Style {
    match state {
        ActionState::Completed => GOOD,
        ActionState::Running => BUSY,
        ActionState::Backoff => WARN,
        ActionState::InDoubt | ActionState::Failed => BAD,
        ActionState::Pending | ActionState::Skipped => DIM,
        _ => PLAIN,
    }
}

/// A symbol of one column.
pub(crate) const fn symbol(state: ActionState) -> &'static str {
    match state {
        ActionState::Completed => "✓",
        ActionState::Running => "▶",
        ActionState::Backoff => "↻",
        ActionState::InDoubt => "?",
        ActionState::Failed => "✗",
        ActionState::Skipped => "–",
        ActionState::Pending => "·",
        _ => "○",
    }
}

/// The name as it is stored.
pub(crate) const fn action_state(state: ActionState) -> &'static str {
    match state {
        ActionState::Pending => "pending",
        ActionState::Ready => "ready",
        ActionState::Running => "running",
        ActionState::Backoff => "backoff",
        ActionState::InDoubt => "in_doubt",
        ActionState::Completed => "completed",
        ActionState::Failed => "failed",
        ActionState::Skipped => "skipped",
        _ => "unknown",
    }
}

/// How far an undo is, in words.
pub(crate) const fn undo_state(state: UndoState) -> &'static str {
    match state {
        UndoState::None => "to be undone",
        UndoState::Running => "being undone",
        UndoState::Failed => "undo failed",
        UndoState::Done => "undone",
        UndoState::Waived => "undo waived",
        _ => "undo unknown",
    }
}
