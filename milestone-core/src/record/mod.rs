//! The stored document: one milestone, with all that its workers and its operators must know.

mod action;
mod attempt;
mod codec;
mod id;
mod mail;
mod status;

use std::collections::BTreeMap;

use bson::{Bson, DateTime};
use serde::{Deserialize, Serialize};

pub use action::{
    ActionKind, ActionRecord, ActionState, Running, Tries, UndoRecord, UndoState, VerifyRecord,
    VerifyState,
};
pub use attempt::{Attempt, AttemptError, AttemptKind, Phase};
pub use codec::Unreadable;
pub use id::MilestoneId;
pub use mail::{Answer, Command, Order};
pub use status::Status;

/// The version of this layout, stored in `schema`. A document with a higher one is left alone.
pub const SCHEMA: i32 = 1;

/// The name of the queue of actions that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// A milestone as it is stored. Field names are the document's, in camel case; dates are the database server's, in milliseconds.
///
/// It is written by [`MilestoneRecord::to_document`] and read by [`MilestoneRecord::from_document`], not by serde alone, which would take
/// some values of users for extended JSON.
///
/// ```
/// # use milestone_core::{graph::Action, limits::Limits, machine::NewMilestone};
/// use milestone_core::record::MilestoneRecord;
/// # let plan = Action::new("debit").into_plan(|_| None).unwrap();
/// # let now = bson::DateTime::from_millis(0);
/// let new = NewMilestone { parameters: bson::doc! { "$oid": "opaque" }.into(), ..NewMilestone::new("Transfer", plan) };
/// let record = MilestoneRecord::new(new, now, &Limits::new())?;
/// let document = record.to_document()?;
/// assert_eq!(document.get_str("type")?, "Transfer");
/// assert_eq!(MilestoneRecord::from_document(document)?, record);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MilestoneRecord {
    /// An `ObjectId`, or the caller's string, which then is the idempotency key.
    #[serde(rename = "_id")]
    pub id: MilestoneId,
    /// The name of the milestone's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version of the layout, [`SCHEMA`].
    pub schema: i32,
    /// What the milestone was started with.
    pub parameters: Bson,
    /// Derived from the actions, stored for people and for `list`.
    pub state: Status,
    /// Set while paused or parked: nothing new begins, whatever the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Set once the milestone is being undone: after a failure for good, a cancel, or its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwind: Option<Unwind>,
    /// When it was started.
    pub created_at: DateTime,
    /// By when it is to have ended: from then on nothing new begins, and what was done is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime>,
    /// When its first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_date: Option<DateTime>,
    /// When it reached a terminal state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_date: Option<DateTime>,
    /// The actions, each behind those it waits for.
    pub actions: Vec<ActionRecord>,
    /// The attempts that have ended, newest first. Those that run stand in their action's `running`.
    #[serde(default)]
    pub report: Vec<Attempt>,
    /// How many attempts were dropped from the middle of `report` to keep it small.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub report_dropped: i64,
    /// How often it has been taken by a worker: the fencing token. Only grows.
    pub epoch: i64,
    /// Who works on it; absent when nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// How many leases in a row ended without a word while attempts ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub losses: i64,
    /// Counts the patches: each filters on the one before.
    pub rev: i64,
    /// What waits to run, so that a worker knows what it can move on; while held, one entry with the method `""`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub due: Vec<Due>,
    /// The earliest of `due`, while held the end of the lease: what the robot's index is on. Absent when terminal or on hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// Commands from outside that no worker has carried out yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inbox: Vec<Command>,
    /// How many commands ever came.
    #[serde(default)]
    pub mail: i64,
    /// What became of the last commands, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
    /// Which of two due milestones is taken first: the higher. Default 0.
    #[serde(default, skip_serializing_if = "is_zero_i32")]
    pub priority: i32,
    /// For search: what the starter wrote.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When the database may remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<DateTime>,
    /// The trace context of the starter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// Why nothing new begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The reason, for people.
    pub reason: String,
    /// Who set it.
    pub by: String,
    /// Since when.
    pub since: DateTime,
}

/// Where a milestone that is being undone will end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwind {
    /// The terminal state: [`Status::Undone`] or [`Status::Cancelled`]; after a deadline, where the graph has no undo,
    /// [`Status::Failed`].
    pub to: Status,
    /// Why, for people.
    pub reason: String,
    /// Who cancelled it; absent after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Since when.
    pub since: DateTime,
}

impl Unwind {
    /// How the reason begins after a deadline.
    pub(crate) const DEADLINE: &'static str = "its deadline";

    /// Whether its deadline has passed, rather than that an action failed or that somebody cancelled it.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.by.is_none() && self.to != Status::Cancelled && self.reason.starts_with(Self::DEADLINE)
    }
}

/// The right of one worker to work on a milestone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The worker.
    pub owner: String,
    /// Random, new for every claim: what every write of this worker is filtered on.
    pub token: String,
    /// When it was taken.
    pub since: DateTime,
    /// When it ends, if it is not renewed.
    pub until: DateTime,
}

/// Something that waits to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Its queue.
    pub queue: String,
    /// From when on.
    pub at: DateTime,
    /// The method that a worker needs for it; `""` is any worker.
    pub method: String,
}

/// When a worker should look at the milestone next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// The queue of what is due first.
    pub queue: String,
    /// From when on.
    pub at: DateTime,
}

impl MilestoneRecord {
    /// The action of that name, and its index.
    #[must_use]
    pub fn action(&self, name: &str) -> Option<(usize, &ActionRecord)> {
        self.actions
            .iter()
            .enumerate()
            .find(|(_, action)| action.name == name)
    }

    /// The queue in which a command waits for a worker while nobody holds the milestone: that of what is due first, or else of the
    /// first action that is not over, so that a worker comes by who serves this milestone at all.
    #[must_use]
    pub fn mail_queue(&self) -> &str {
        self.next
            .as_ref()
            .map_or_else(|| self.own_queue(), |next| &next.queue)
    }

    /// The queue of the first action that is not over.
    pub(crate) fn own_queue(&self) -> &str {
        let open = |action: &&ActionRecord| {
            !matches!(action.state, ActionState::Completed | ActionState::Skipped)
        };
        let action = self
            .actions
            .iter()
            .find(open)
            .or_else(|| self.actions.first());
        action
            .and_then(|action| action.queue.as_deref())
            .unwrap_or(DEFAULT_QUEUE)
    }

    /// The indices of the last actions, those that nothing waits for.
    #[must_use]
    pub fn ends(&self) -> Vec<usize> {
        let mut followed = vec![false; self.actions.len()];
        for before in self.actions.iter().flat_map(|action| &action.after) {
            if let Some(slot) = followed.get_mut(*before as usize) {
                *slot = true;
            }
        }
        (0..followed.len())
            .filter(|index| !followed[*index])
            .collect()
    }

    /// Which actions run before the one at `index`, directly or through others; none before one that does not exist.
    #[must_use]
    pub fn ancestors(&self, index: usize) -> Vec<bool> {
        let mut before = vec![false; self.actions.len()];
        for (at, action) in self.actions.iter().enumerate().take(index + 1).rev() {
            if at == index || before[at] {
                for after in &action.after {
                    before[*after as usize] = true;
                }
            }
        }
        before
    }

    /// The input of an action, as an attempt of it sees it: `{ milestone: <parameters>, <action>: <output>, .. }`, with the
    /// outputs of all actions that ran before it. It is put together on reading and never stored, since none of it changes.
    #[must_use]
    pub fn input(&self, index: usize) -> bson::Document {
        let mut input = bson::Document::new();
        input.insert("milestone", self.parameters.clone());
        for (action, before) in self.actions.iter().zip(self.ancestors(index)) {
            if let (true, Some(output)) = (before, &action.output) {
                input.insert(action.name.clone(), output.clone());
            }
        }
        input
    }

    /// The output of a milestone: each action's, by name.
    #[must_use]
    pub fn outputs(&self) -> bson::Document {
        self.actions
            .iter()
            .filter_map(|action| {
                action
                    .output
                    .clone()
                    .map(|output| (action.name.clone(), output))
            })
            .collect()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_zero_i32(value: &i32) -> bool {
    *value == 0
}
