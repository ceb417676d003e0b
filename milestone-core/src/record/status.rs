//! The state of a milestone.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a milestone, derived from its actions and stored for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Stored; nothing has begun.
    Pending,
    /// Something runs or is ready to.
    Running,
    /// Nothing can run before a time: an action is retried later.
    Waiting,
    /// Nothing can run before somebody says whether an action took effect.
    InDoubt,
    /// What was done is being undone.
    Undoing,
    /// Terminal: every action is complete.
    Completed,
    /// Terminal: an action failed for good. `retry` goes on from it.
    Failed,
    /// Terminal: an action failed for good, and what was done is undone.
    Undone,
    /// Terminal: cancelled, and what was done is undone where an undo was given.
    Cancelled,
}

impl Status {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Running,
        Self::Waiting,
        Self::InDoubt,
        Self::Undoing,
        Self::Completed,
        Self::Failed,
        Self::Undone,
        Self::Cancelled,
    ];

    /// Whether nothing moves any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Undone | Self::Cancelled
        )
    }

    /// The name as it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::InDoubt => "in_doubt",
            Self::Undoing => "undoing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Undone => "undone",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
