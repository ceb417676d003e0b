//! A milestone that this worker holds: the document as it will be, and what is on its way to the database.

use std::{collections::BTreeMap, sync::Arc};

use bson::{Bson, DateTime};
use milestone_core::{
    limits::Limits,
    machine::{Event, Task, TransitionError, advance},
    patch::{Patch, size_of_value},
    record::{MilestoneId, MilestoneRecord},
};

use tokio::{sync::mpsc::UnboundedSender, task::AbortHandle};

use super::{hold::Hold, message::Message};
use crate::{action::StoredValue, store::Commit};

/// A change that is planned: the patch, and what it came from, so that it can be planned anew.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) patch: Patch,
    /// Without what follows from the document: beginnings, handing back and mail.
    pub(super) events: Vec<Event>,
    /// The attempts that begin once it is stored.
    pub(super) begins: Vec<(Task, i64)>,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent of each other"
)]
pub(super) struct Held {
    /// As it is once everything planned is stored.
    pub(super) record: MilestoneRecord,
    pub(super) token: String,
    /// What bodies know of the lease.
    pub(super) hold: Arc<Hold>,
    /// The `rev` in the database, as far as it was acknowledged.
    pub(super) rev: i64,
    /// On its way, and not to be touched.
    pub(super) in_flight: Option<Commit>,
    pub(super) flying: Change,
    /// Collected while something is on its way.
    pub(super) pending: Change,
    /// The bodies that run, by their serial numbers.
    pub(super) bodies: BTreeMap<Task, u64>,
    /// Attempts that are stored as begun, but whose bodies wait for a renewal of the lease.
    pub(super) waiting: Vec<(Task, i64)>,
    /// Whether the database did not let the lease be renewed the last time.
    pub(super) unrenewed: bool,
    pub(super) parameters: Arc<StoredValue>,
    /// About the size of the document, in bytes; never too small.
    pub(super) size: usize,
    /// Events that are committed one by one, since the server refused them together.
    pub(super) replay: Vec<Event>,
    pub(super) careful: bool,
    /// How often in a row the server has refused what was to be stored.
    pub(super) refusals: u32,
    /// Whether it stands in the queue for a place.
    pub(super) queued: bool,
    /// When the earliest of what is due only later is due.
    pub(super) due_at: Option<DateTime>,
    /// When it is looked at again for that.
    pub(super) wake: Option<(DateTime, Timer)>,
    /// Whether it stands in the queue for a commit.
    pub(super) dirty: bool,
}

/// A timer that goes with its milestone.
#[derive(Debug)]
pub(super) struct Timer(pub(super) AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Held {
    pub(super) fn new(
        mut record: MilestoneRecord,
        tell: &UnboundedSender<Message>,
    ) -> Option<Self> {
        let parameters = std::mem::replace(&mut record.parameters, Bson::Null);
        Self::with(record, StoredValue::new(&parameters), tell)
    }

    /// A record that holds no parameters, and they.
    pub(super) fn with(
        record: MilestoneRecord,
        parameters: StoredValue,
        tell: &UnboundedSender<Message>,
    ) -> Option<Self> {
        let lease = record.lease.clone()?;
        let hold = Hold::new(
            record.id.clone(),
            lease.token.clone(),
            lease.until,
            tell.clone(),
        );
        let size = parameters.size() + size_of(&record);
        Some(Self {
            token: lease.token,
            rev: record.rev,
            hold: Arc::new(hold),
            record,
            in_flight: None,
            flying: Change::default(),
            pending: Change::default(),
            bodies: BTreeMap::new(),
            waiting: Vec::new(),
            unrenewed: false,
            parameters: Arc::new(parameters),
            size,
            replay: Vec::new(),
            careful: false,
            refusals: 0,
            queued: false,
            due_at: None,
            wake: None,
            dirty: false,
        })
    }

    /// Carries out an event on the document in memory, and adds what it changes to what is planned.
    pub(super) fn plan(
        &mut self,
        event: Event,
        now: DateTime,
        limits: &Limits,
    ) -> Result<(), TransitionError> {
        // What follows from the document is found again when it is planned anew.
        let kept = match &event {
            Event::Begin { .. } | Event::HandBack | Event::Mail => None,
            event => Some(event.clone()),
        };
        let patch = advance(&mut self.record, event, now, limits)?;
        self.size += patch.size();
        self.pending.patch.merge(patch);
        self.pending.events.extend(kept);
        Ok(())
    }

    /// Whether it was handed back or has ended, in what is planned or on its way: nothing more can happen to it here.
    pub(super) fn is_closing(&self) -> bool {
        self.record.lease.is_none()
    }

    /// The end of the lease, as far as it was acknowledged.
    pub(super) fn until(&self) -> DateTime {
        self.hold.until()
    }

    /// Whether nothing of it runs or is about to, not even a call that a body has left behind.
    pub(super) fn is_idle(&self) -> bool {
        self.bodies.is_empty()
            && !self.hold.has_calls()
            && self.waiting.is_empty()
            && self.flying.begins.is_empty()
            && self.pending.begins.is_empty()
    }

    /// Whether nothing of it runs, and something would if there were a place or if it were its turn.
    pub(super) fn waits(&self) -> bool {
        self.queued && !self.is_closing() && self.is_idle() && self.replay.is_empty()
    }

    /// Puts what is planned on its way.
    pub(super) fn take_commit(&mut self) -> Option<Commit> {
        if self.in_flight.is_some() || self.pending.patch.is_empty() {
            return None;
        }
        self.flying = std::mem::take(&mut self.pending);
        let patch = Arc::new(std::mem::take(&mut self.flying.patch));
        let commit = Commit {
            id: self.record.id.clone(),
            token: self.token.clone(),
            rev: self.rev,
            patch,
        };
        self.in_flight = Some(commit.clone());
        Some(commit)
    }

    pub(super) fn id(&self) -> &MilestoneId {
        &self.record.id
    }
}

/// What was begun by the write that gave it to this worker.
pub(super) fn begun(held: &Held) -> Vec<(Task, i64)> {
    let actions = held.record.actions.iter().enumerate();
    actions
        .filter_map(|(index, action)| Some((Task::to_do(index), action.running.as_ref()?)))
        .filter(|(_, running)| running.epoch == held.record.epoch)
        .map(|(task, running)| (task, running.number))
        .collect()
}

/// About how many bytes the document has besides its parameters, without encoding it.
fn size_of(record: &MilestoneRecord) -> usize {
    let outputs: usize = record
        .actions
        .iter()
        .map(|action| 512 + action.output.as_ref().map_or(0, size_of_value))
        .sum();
    let errors = record.report.iter().map(|attempt| {
        256 + attempt.error.as_ref().map_or(0, |error| {
            error.message.len()
                + error.backtrace.as_deref().map_or(0, str::len)
                + error.chain.iter().map(String::len).sum::<usize>()
        })
    });
    2048 + outputs + errors.sum::<usize>()
}
