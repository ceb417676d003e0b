//! What waits to run, and from when on.

use std::collections::{BTreeMap, BTreeSet};

use bson::DateTime;

use super::{
    Task, TransitionError,
    editor::Editor,
    encode::{Encode, encode_all},
    undo::{blocked, can_be_undone},
};
use crate::record::{
    ActionRecord, ActionState, DEFAULT_QUEUE, Due, MilestoneRecord, Next, UndoState, VerifyState,
};

/// Something that waits to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTask<'r> {
    /// What it is.
    pub task: Task,
    /// The method that a worker needs for it.
    pub method: &'r str,
    /// Its queue.
    pub queue: &'r str,
    /// From when on; `None` is now.
    pub at: Option<DateTime>,
}

/// What waits to run, in the order of the graph. Nothing does while the milestone is on hold.
#[must_use]
pub fn due_tasks(record: &MilestoneRecord) -> Vec<DueTask<'_>> {
    if record.hold.is_some() {
        return Vec::new();
    }
    let undoing = record.unwind.is_some().then(|| blocked(record));
    let verifies = |action: &ActionRecord| {
        action.state == ActionState::InDoubt
            && action
                .verify
                .as_ref()
                .is_some_and(|verify| verify.state == VerifyState::None)
    };
    let actions = record.actions.iter().enumerate();
    actions
        .filter_map(|(index, action)| {
            let queue = action.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
            // What is undone anyway need not be looked into.
            if verifies(action) && (undoing.is_none() || action.undo.is_none()) {
                let verify = action.verify.as_ref()?;
                return Some(DueTask {
                    task: Task::to_verify(index),
                    method: &verify.method,
                    queue,
                    at: verify.at.max(action.settle_after),
                });
            }
            if let Some(blocked) = &undoing {
                let undo = action.undo.as_ref()?;
                if undo.state != UndoState::None || blocked[index] || !can_be_undone(action) {
                    return None;
                }
                let settled = action
                    .settle_after
                    .filter(|_| action.state == ActionState::InDoubt);
                let at = undo.at.max(settled);
                return Some(DueTask {
                    task: Task::to_undo(index),
                    method: &undo.method,
                    queue,
                    at,
                });
            }
            let at = match action.state {
                ActionState::Ready => None,
                ActionState::Backoff => action.at,
                _ => return None,
            };
            Some(DueTask {
                task: Task::to_do(index),
                method: action.method.as_deref()?,
                queue,
                at,
            })
        })
        .collect()
}

/// The tasks that may begin now.
pub(super) fn due_now(record: &MilestoneRecord, now: DateTime) -> BTreeSet<Task> {
    if is_overdue(record, now) {
        return BTreeSet::new();
    }
    due_tasks(record)
        .into_iter()
        .filter(|due| due.at.is_none_or(|at| at <= now))
        .map(|due| due.task)
        .collect()
}

/// Whether its deadline has passed, and nothing was done about that yet: [`super::Event::Overdue`] is what comes next.
#[must_use]
pub fn is_overdue(record: &MilestoneRecord, now: DateTime) -> bool {
    deadline_of(record).is_some_and(|deadline| deadline <= now)
}

/// Its deadline, if that can still end it: neither once it is being undone or over, nor on hold, where nothing begins, undoing neither.
#[must_use]
pub fn deadline_of(record: &MilestoneRecord) -> Option<DateTime> {
    let is_open = record.unwind.is_none() && record.hold.is_none() && !record.state.is_terminal();
    record.deadline.filter(|_| is_open)
}

/// The entries of a milestone that nobody holds: what a worker must be able to do, and when it should look. One entry for each method
/// and queue is enough, with the earliest time.
pub(super) fn schedule(record: &MilestoneRecord, now: DateTime) -> (Vec<Due>, Option<Next>) {
    let mut due: BTreeMap<(&str, &str), DateTime> = BTreeMap::new();
    for task in due_tasks(record) {
        let at = task.at.unwrap_or(now);
        due.entry((task.queue, task.method))
            .and_modify(|earliest| *earliest = at.min(*earliest))
            .or_insert(at);
    }
    if let Some(deadline) = deadline_of(record) {
        due.insert((record.own_queue(), ""), deadline);
    }
    let next = due
        .iter()
        .min_by_key(|(_, at)| **at)
        .map(|((queue, _), at)| Next {
            queue: (*queue).to_owned(),
            at: *at,
        });
    let due = due
        .into_iter()
        .map(|((queue, method), at)| Due {
            queue: queue.to_owned(),
            at,
            method: method.to_owned(),
        })
        .collect();
    (due, next)
}

impl Editor<'_> {
    /// Gives up the lease. What is due is written, for whoever comes next.
    pub(super) fn hand_back(&mut self) -> Result<(), TransitionError> {
        let mut actions = self.record.actions.iter();
        let runs = actions.find(|action| action.is_running());
        if let Some(action) = runs {
            return Err(TransitionError::StillRunning {
                action: action.name.clone(),
            });
        }
        // What is due is what follows from the time, too.
        self.derive();
        self.release();
        (self.record.due, self.record.next) = schedule(self.record, self.now);
        if self.record.due.is_empty() {
            self.patch.unset("due");
        } else {
            self.patch.set("due", encode_all(&self.record.due));
        }
        match &self.record.next {
            Some(next) => self.patch.set("next", next.encode()),
            None => self.patch.unset("next"),
        }
        Ok(())
    }
}
