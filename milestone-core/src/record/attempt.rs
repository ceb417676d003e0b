//! One attempt of an action, as the report holds it.

use std::time::Duration;

use bson::DateTime;
use serde::{Deserialize, Serialize};

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The name of its action.
    pub action: String,
    /// Its number, from 1; attempts to verify and to undo count for themselves.
    pub number: i64,
    /// Whether it was to do the action, to verify it or to undo it; absent is to do it.
    #[serde(default, skip_serializing_if = "Phase::is_do")]
    pub phase: Phase,
    /// Whether it succeeded; null: nobody knows, see `kind`.
    pub success: Option<bool>,
    /// What was special about its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<AttemptKind>,
    /// When it began.
    pub begin_date: DateTime,
    /// When it ended, or was found to have been abandoned.
    pub end_date: DateTime,
    /// The worker that ran it.
    pub worker: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<AttemptError>,
}

impl Attempt {
    /// How long it took; of an abandoned one, until that was found.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let millis = self
            .end_date
            .timestamp_millis()
            .saturating_sub(self.begin_date.timestamp_millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

/// Whether an attempt is to do its action, to verify whether it took effect, or to undo it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// To do it.
    #[default]
    Do,
    /// To say whether an attempt in doubt took effect.
    Verify,
    /// To undo it.
    Undo,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Do, Self::Verify, Self::Undo];

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands over a reference"
    )]
    const fn is_do(&self) -> bool {
        matches!(self, Self::Do)
    }
}

/// What was special about the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptKind {
    /// Its worker lost the lease without a word: killed, or cut off.
    Abandoned,
    /// It took longer than its timeout.
    Timeout,
    /// It panicked.
    Panic,
    /// Its error says that nobody knows whether it took effect.
    Unclear,
    /// It was ended by a shutdown or a cancel.
    Cancelled,
    /// Its output could not be stored; the action counts as applied and is not run again.
    Refused,
}

/// Why an attempt failed: what people need to find the place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// The type of the error.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    pub message: String,
    /// What the errors behind it say, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// The stack, where it was captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
    /// The place in the source, `file:line:column`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}
