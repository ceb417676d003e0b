//! One action of a stored milestone.

use bson::{Bson, DateTime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    /// The durable name of the function that tells whether an attempt in doubt took effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
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
    /// How it is undone, if it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoRecord>,
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
