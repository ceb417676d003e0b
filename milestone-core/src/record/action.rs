//! One action of a stored milestone.

use bson::{Bson, DateTime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Phase;
use crate::options::Mode;

/// One action of a stored milestone, with what a worker without its method must know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionRecord {
    /// The name in this milestone.
    pub name: String,
    /// What it is.
    pub kind: ActionKind,
    /// The durable name of the function that runs; null for a fork.
    pub method: Option<String>,
    /// How often it may run.
    pub mode: Mode,
    /// The indices of the actions it waits for.
    #[serde(serialize_with = "small")]
    pub after: Vec<u32>,
    /// The queue in which it waits; absent is the default queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How far it is.
    pub state: ActionState,
    /// How many attempts have begun.
    pub attempts: i64,
    /// How many attempts in a row have failed: what the backoff grows with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i64,
    /// The attempt that runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DateTime>,
    /// While in doubt: from when on the old attempt can no longer take effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle_after: Option<DateTime>,
    /// Its output, once it is complete; null is an output too.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub output: Option<Bson>,
    /// How an attempt in doubt is looked into, if it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyRecord>,
    /// How it is undone, if it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoRecord>,
}

/// The attempts of one phase of an action, as [`ActionRecord::tries`] gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tries<'r> {
    /// The durable name of the function; `None` for a fork.
    pub method: Option<&'r str>,
    /// How many attempts have begun.
    pub attempts: i64,
    /// How many attempts in a row have failed.
    pub failures: i64,
    /// The attempt that runs now.
    pub running: Option<&'r Running>,
    /// When it is tried again.
    pub at: Option<DateTime>,
}

impl ActionRecord {
    /// The attempts to do, to verify or to undo the action; `None` if it has no such function.
    #[must_use]
    pub fn tries(&self, phase: Phase) -> Option<Tries<'_>> {
        match phase {
            Phase::Do => Some(Tries {
                method: self.method.as_deref(),
                attempts: self.attempts,
                failures: self.failures,
                running: self.running.as_ref(),
                at: self.at,
            }),
            Phase::Verify => self.verify.as_ref().map(|verify| Tries {
                method: Some(&verify.method),
                attempts: verify.attempts,
                failures: verify.failures,
                running: verify.running.as_ref(),
                at: verify.at,
            }),
            Phase::Undo => self.undo.as_ref().map(|undo| Tries {
                method: Some(&undo.method),
                attempts: undo.attempts,
                failures: undo.failures,
                running: undo.running.as_ref(),
                at: undo.at,
            }),
        }
    }

    /// The attempt that runs now, in that phase.
    #[must_use]
    pub fn running_in(&self, phase: Phase) -> Option<&Running> {
        self.tries(phase)?.running
    }

    /// Whether anything of it runs: to do, to verify or to undo it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        Phase::ALL
            .into_iter()
            .any(|phase| self.running_in(phase).is_some())
    }
}

/// What an action is. More kinds will come: a worker leaves a document with one that it does not know alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActionKind {
    /// A function.
    Action,
    /// Nothing to do: complete as soon as its turn comes.
    Fork,
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActionState {
    /// Waits for others.
    Pending,
    /// Waits for a worker.
    Ready,
    /// An attempt runs.
    Running,
    /// Failed, and is tried again at `at`.
    Backoff,
    /// An attempt began, and nobody knows whether it took effect.
    InDoubt,
    /// Done; it never changes again.
    Completed,
    /// Failed for good.
    Failed,
    /// Never to run, since something before it failed or the milestone was cancelled.
    Skipped,
}

/// An attempt that runs, or did when its worker was last heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// Its number, from 1.
    pub number: i64,
    /// When it began.
    pub begin_date: DateTime,
    /// The worker.
    pub worker: String,
    /// The epoch in which it began.
    pub epoch: i64,
}

/// How an attempt in doubt is looked into: a function tells whether it took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyRecord {
    /// The durable name of the function.
    pub method: String,
    /// How far it is.
    pub state: VerifyState,
    /// How many attempts have begun.
    #[serde(default)]
    pub attempts: i64,
    /// How many attempts in a row have failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i64,
    /// The attempt that runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DateTime>,
}

/// How far the function is that looks into an attempt in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VerifyState {
    /// Nothing to verify, or to be tried, or to be tried again.
    None,
    /// An attempt runs.
    Running,
    /// Failed for good: an operator must say whether the action took effect.
    Failed,
}

/// How an action is undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoRecord {
    /// The durable name of the function.
    pub method: String,
    /// How far it is.
    pub state: UndoState,
    /// How many attempts have begun.
    #[serde(default)]
    pub attempts: i64,
    /// How many attempts in a row have failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i64,
    /// The attempt that runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DateTime>,
}

/// How far the undoing of an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UndoState {
    /// Not begun, or to be tried again.
    None,
    /// An attempt runs.
    Running,
    /// Failed for good: an operator must look at it.
    Failed,
    /// Undone.
    Done,
    /// An operator said that it need not be undone.
    Waived,
}

/// As 32-bit numbers: serde would store an `u32` as 64 bits, which mongosh shows as `Long('0')`.
fn small<S: Serializer>(after: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    let small = |index: &u32| i32::try_from(*index).unwrap_or(i32::MAX);
    serializer.collect_seq(after.iter().map(small))
}

/// A field that is there is `Some`, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bson>, D::Error> {
    Bson::deserialize(deserializer).map(Some)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_zero(value: &i64) -> bool {
    *value == 0
}
