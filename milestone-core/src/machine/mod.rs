//! The state machine: from a stored milestone, an event and the time to a patch. It does no I/O and knows no clock.
//!
//! Three things are true of every event, whatever the milestone: an error leaves the record as it was; the patch does to the document
//! what the event did to the record; and a patch that begins, hands back or ends leaves no command of the inbox unread, and says by
//! [`Patch::mail`] how many it knows of.

mod attempts;
mod claim;
mod commands;
mod create;
mod editor;
mod encode;
mod invariants;
mod propagate;
mod report;
mod schedule;
mod undo;

use std::time::Duration;

use bson::{Bson, DateTime};

pub use claim::{Begins, claim};
pub use create::{NewMilestone, StartError};
pub use invariants::{Violation, check};
pub use schedule::{DueTask, deadline_of, due_tasks, is_overdue};

use crate::{
    limits::Limits,
    patch::Patch,
    record::{AttemptError, AttemptKind, MilestoneRecord, Phase},
    retry::RetryPolicy,
};
use editor::Editor;

/// Something that a worker runs: an action, to do it, to verify whether it took effect, or to undo it.
///
/// ```
/// use milestone_core::machine::Task;
///
/// assert_ne!(Task::to_do(0), Task::to_undo(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// The index of the action.
    pub action: usize,
    /// To do it, to verify it or to undo it.
    pub phase: Phase,
}

impl Task {
    /// To do the action at `index`.
    #[must_use]
    pub const fn to_do(index: usize) -> Self {
        Self {
            action: index,
            phase: Phase::Do,
        }
    }

    /// To say whether the action at `index`, which is in doubt, took effect.
    #[must_use]
    pub const fn to_verify(index: usize) -> Self {
        Self {
            action: index,
            phase: Phase::Verify,
        }
    }

    /// To undo the action at `index`.
    #[must_use]
    pub const fn to_undo(index: usize) -> Self {
        Self {
            action: index,
            phase: Phase::Undo,
        }
    }
}

/// What happens to a milestone while a worker holds it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The worker has taken it, after [`crate::lease::claim`]. Attempts that run in the document since an earlier epoch are those of a
    /// worker that is no more: repeatable ones run again, plain ones are in doubt.
    TakenOver {
        /// How long the old worker may still be at work on what must not run twice: added to the time, it gives `settleAfter`.
        settle: Duration,
    },
    /// Attempts begin. Commands of the inbox are carried out first; if they forbid it, it is an error.
    Begin {
        /// What begins; all of it must be due, each once. See [`due_tasks`].
        tasks: Vec<Task>,
        /// The worker.
        worker: String,
    },
    /// An attempt has succeeded. An output that cannot be stored is refused: the action then has failed for good, and counts as applied.
    Succeeded {
        /// What ran.
        task: Task,
        /// The number of the attempt, as the document's `running` has it.
        number: i64,
        /// What it gave: the output of an action, a [`Verdict`](crate::verdict::Verdict) of a verify; of an undo it is not kept.
        output: Bson,
    },
    /// An attempt has failed. By its kind, the action's mode and the policy it runs again, is in doubt, or has failed for good.
    Failed {
        /// What ran.
        task: Task,
        /// The number of the attempt.
        number: i64,
        /// How.
        failed: Failed,
    },
    /// The deadline may have passed: see [`is_overdue`].
    Overdue,
    /// The commands in the inbox are carried out, the oldest first, and answered.
    Mail,
    /// The worker gives the milestone back; nothing runs. Commands of the inbox are carried out first.
    HandBack,
}

/// How an attempt failed, and how it is to be retried.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The error, for people.
    pub error: AttemptError,
    /// What was special about its end.
    pub kind: Option<AttemptKind>,
    /// Whether no retry would mend it: the action fails for good, an undo waits for an operator.
    pub fatal: bool,
    /// The delay that the error asks for, instead of the policy's.
    pub retry_after: Option<Duration>,
    /// The policy of the action. An undo is retried without end, whatever it says.
    pub policy: RetryPolicy,
    /// From 0 to 1, to spread retries.
    pub jitter: f64,
    /// How long the attempt may still take effect, if it was cut off.
    pub settle: Duration,
}

impl Failed {
    /// Whether the worker ended it, not the action: it is no failure of the action.
    const fn is_handed_back(&self) -> bool {
        matches!(
            self.kind,
            Some(AttemptKind::Cancelled | AttemptKind::Abandoned)
        )
    }
}

/// An event that does not fit the milestone. The milestone is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransitionError {
    /// The attempt that ended is not the one that runs.
    #[error("attempt {number} of `{action}` does not run")]
    NotRunning {
        /// The action.
        action: String,
        /// The number of the attempt.
        number: i64,
    },
    /// What should begin is not due.
    #[error("`{action}` cannot begin now")]
    NotDue {
        /// The action.
        action: String,
    },
    /// There is no such action.
    #[error("the milestone has no action number {index}")]
    NoAction {
        /// The index.
        index: usize,
    },
    /// The milestone cannot be handed back, since something runs.
    #[error("`{action}` runs, so the milestone cannot be handed back")]
    StillRunning {
        /// The action.
        action: String,
    },
    /// Nobody holds the milestone.
    #[error("nobody holds the milestone")]
    NotHeld,
}

impl TransitionError {
    /// A stable code, for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotRunning { .. } => "not_running",
            Self::NotDue { .. } => "not_due",
            Self::NoAction { .. } => "no_action",
            Self::StillRunning { .. } => "still_running",
            Self::NotHeld => "not_held",
        }
    }
}

/// Says what an event changes, and leaves the record as it is. It copies the record: a worker that goes on with it takes [`advance`].
///
/// # Errors
/// [`TransitionError`] if it does not fit.
pub fn apply(
    record: &MilestoneRecord,
    event: Event,
    now: DateTime,
    limits: &Limits,
) -> Result<Patch, TransitionError> {
    advance(&mut record.clone(), event, now, limits)
}

/// Carries out an event on a record in memory, and gives the patch that does the same to the stored document. `rev` stays: whoever
/// commits the patch counts it. `now` is the database server's time.
///
/// ```
/// # use bson::DateTime;
/// # use milestone_core::{graph::Action, limits::Limits, machine::NewMilestone, record::{Lease, MilestoneRecord}};
/// use milestone_core::machine::{Event, Task, advance};
///
/// # let (now, limits) = (DateTime::from_millis(0), Limits::new());
/// # let plan = Action::new("debit").into_plan(|_| None).unwrap();
/// # let mut record = MilestoneRecord::new(NewMilestone::new("Transfer", plan), now, &limits).unwrap();
/// # record.born_leased(Lease { owner: "w".into(), token: "t".into(), since: now, until: now });
/// let begin = Event::Begin { tasks: vec![Task::to_do(0)], worker: "w".into() };
/// let patch = advance(&mut record, begin, now, &limits)?;
/// assert_eq!(patch.value("actions.0.state"), Some(&"running".into()));
/// assert_eq!(patch.value("state"), Some(&"running".into()));
/// # Ok::<(), milestone_core::machine::TransitionError>(())
/// ```
///
/// # Errors
/// [`TransitionError`] if the event does not fit; the record is then as it was.
pub fn advance(
    record: &mut MilestoneRecord,
    event: Event,
    now: DateTime,
    limits: &Limits,
) -> Result<Patch, TransitionError> {
    if record.lease.is_none() {
        return Err(TransitionError::NotHeld);
    }
    if !record.inbox.is_empty() && matches!(event, Event::Begin { .. } | Event::HandBack) {
        return after_mail(record, event, now, limits);
    }
    let mut editor = Editor::new(record, now, limits);
    match event {
        Event::TakenOver { settle } => editor.take_over(settle),
        Event::Begin { tasks, worker } => editor.begin(&tasks, &worker)?,
        Event::Succeeded {
            task,
            number,
            output,
        } => editor.succeed(task, number, output)?,
        Event::Failed {
            task,
            number,
            failed,
        } => editor.fail(task, number, failed)?,
        // What follows from the time is looked at after every event.
        Event::Overdue => {}
        Event::Mail => editor.read_mail(),
        Event::HandBack => editor.hand_back()?,
    }
    editor.propagate();
    Ok(editor.finish())
}

/// Nothing begins and nothing is handed back while a command is unread: it is carried out first, in the same patch. On a copy, so that
/// an error leaves the record as it was.
fn after_mail(
    record: &mut MilestoneRecord,
    event: Event,
    now: DateTime,
    limits: &Limits,
) -> Result<Patch, TransitionError> {
    let mut copy = record.clone();
    let mut patch = advance(&mut copy, Event::Mail, now, limits)?;
    let ended = copy.lease.is_none();
    if !(ended && matches!(event, Event::HandBack)) {
        patch.merge(advance(&mut copy, event, now, limits)?);
    }
    *record = copy;
    Ok(patch)
}

#[cfg(test)]
mod tests;
