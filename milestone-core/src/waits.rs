//! Why a milestone does not move on, or who moves it: what an operator wants to know.

use bson::DateTime;

use crate::{
    machine::{DueTask, due_tasks},
    record::{
        ActionRecord, ActionState, Hold, MilestoneRecord, Phase, Running, UndoRecord, UndoState,
    },
};

/// One thing that a milestone waits for. While it is not over there is at least one: see [`MilestoneRecord::waits`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Wait<'r> {
    /// Commands were sent, and no worker has read them yet.
    Mail {
        /// How many.
        commands: usize,
    },
    /// It is on hold: nothing new begins before somebody resumes it.
    Hold(&'r Hold),
    /// An attempt runs, or did when its worker was last heard of.
    Running {
        /// The action.
        action: &'r ActionRecord,
        /// To do it, or what else.
        phase: Phase,
        /// The attempt.
        running: &'r Running,
    },
    /// An action in doubt: somebody must say whether it took effect. From its `settle_after` on it no longer can.
    Doubt {
        /// The action.
        action: &'r ActionRecord,
    },
    /// An undo failed for good: somebody must let it be tried again, or say that it need not be undone.
    Undo {
        /// The action.
        action: &'r ActionRecord,
        /// Its undo.
        undo: &'r UndoRecord,
    },
    /// Nothing but a time: then a worker that has the method may begin.
    Time {
        /// The action.
        action: &'r ActionRecord,
        /// What is due then.
        due: DueTask<'r>,
        /// The time.
        at: DateTime,
    },
    /// It is due: a worker that has the method may begin at once.
    Worker {
        /// The action.
        action: &'r ActionRecord,
        /// What is due.
        due: DueTask<'r>,
    },
}

impl MilestoneRecord {
    /// All that the milestone waits for at that time: first what holds up everything, then what runs, what needs a person, what waits
    /// for a time, and what waits for a worker; within each in the order of the graph. Nothing of a milestone that is over.
    ///
    /// ```
    /// # use milestone_core::{graph::{Plan, PlannedAction}, limits::Limits, machine::NewMilestone, options::Mode, record::MilestoneRecord};
    /// use milestone_core::waits::Wait;
    /// # let plan = Plan::new(vec![PlannedAction::new("debit", Mode::Plain)]).unwrap();
    /// # let now = bson::DateTime::from_millis(0);
    /// let record = MilestoneRecord::new(NewMilestone::new("Transfer", plan), now, &Limits::new()).unwrap();
    /// let waits = record.waits(now);
    /// assert!(matches!(&waits[..], [Wait::Worker { due, .. }] if due.method == "debit"));
    /// ```
    #[must_use]
    pub fn waits(&self, now: DateTime) -> Vec<Wait<'_>> {
        let mut waits = Vec::new();
        if !self.inbox.is_empty() {
            waits.push(Wait::Mail {
                commands: self.inbox.len(),
            });
        }
        if self.state.is_terminal() {
            return waits;
        }
        waits.extend(self.hold.as_ref().map(Wait::Hold));
        waits.extend(self.actions.iter().flat_map(attempts));
        waits.extend(self.actions.iter().filter_map(person));
        let (mut later, mut now_due) = (Vec::new(), Vec::new());
        for due in due_tasks(self) {
            let action = &self.actions[due.task.action];
            match due.at.filter(|at| *at > now) {
                Some(at) => later.push(Wait::Time { action, due, at }),
                None => now_due.push(Wait::Worker { action, due }),
            }
        }
        waits.extend(later);
        waits.extend(now_due);
        waits
    }
}

/// What runs of an action.
fn attempts(action: &ActionRecord) -> impl Iterator<Item = Wait<'_>> {
    Phase::ALL.into_iter().filter_map(move |phase| {
        Some(Wait::Running {
            action,
            phase,
            running: action.running_in(phase)?,
        })
    })
}

/// What a person is asked for.
fn person(action: &ActionRecord) -> Option<Wait<'_>> {
    if let Some(undo) = &action.undo {
        match undo.state {
            UndoState::Failed => return Some(Wait::Undo { action, undo }),
            // What is undone need not be resolved.
            UndoState::Running | UndoState::Done | UndoState::Waived => return None,
            UndoState::None => {}
        }
    }
    (action.state == ActionState::InDoubt).then_some(Wait::Doubt { action })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::Bson;

    use super::*;
    use crate::{
        graph::{Plan, PlannedAction},
        lease::claim,
        limits::Limits,
        machine::{Event, Failed, NewMilestone, Task, advance},
        options::Mode,
        record::{AttemptError, AttemptKind, Command, Lease, Order},
        retry::RetryPolicy,
    };

    const NOW: DateTime = DateTime::from_millis(100_000);

    /// charge -> (send, file), where a charge can be undone; held by a worker.
    fn order(mode: Mode) -> MilestoneRecord {
        let mut charge = PlannedAction::new("charge", mode);
        charge.undo = Some("refund".to_owned());
        let send = PlannedAction::new("send", Mode::Plain).after([0]);
        let file = PlannedAction::new("file", Mode::Idempotent).after([0]);
        let plan = Plan::new(vec![charge, send, file]).unwrap();
        let new = NewMilestone::new("Order", plan);
        let mut record = MilestoneRecord::new(new, NOW, &Limits::new()).unwrap();
        let _ = claim(&mut record, lease());
        record
    }

    fn lease() -> Lease {
        Lease {
            owner: "w".to_owned(),
            token: "t".to_owned(),
            since: NOW,
            until: DateTime::from_millis(110_000),
        }
    }

    fn step(record: &mut MilestoneRecord, event: Event) {
        let _ = advance(record, event, NOW, &Limits::new()).unwrap();
    }

    fn begin(record: &mut MilestoneRecord, task: Task) {
        let worker = "w".to_owned();
        step(
            record,
            Event::Begin {
                tasks: vec![task],
                worker,
            },
        );
    }

    fn fail(record: &mut MilestoneRecord, task: Task, kind: Option<AttemptKind>, fatal: bool) {
        let failed = Failed {
            error: AttemptError::default(),
            kind,
            fatal,
            retry_after: Some(Duration::from_secs(5)),
            policy: RetryPolicy::default(),
            jitter: 0.5,
            settle: Duration::from_secs(30),
        };
        step(
            record,
            Event::Failed {
                task,
                number: 1,
                failed,
            },
        );
    }

    fn order_of(record: &mut MilestoneRecord, order: Order) {
        record.inbox.push(Command {
            id: "c".to_owned(),
            order,
            by: "ann".to_owned(),
            at: NOW,
        });
        step(record, Event::Mail);
    }

    /// What is waited for, in short.
    fn told(record: &MilestoneRecord) -> Vec<String> {
        let waits = record.waits(NOW);
        let text = |wait: &Wait<'_>| match wait {
            Wait::Mail { commands } => format!("mail {commands}"),
            Wait::Hold(hold) => format!("hold {}", hold.reason),
            Wait::Running { action, phase, .. } => format!("running {} {phase:?}", action.name),
            Wait::Doubt { action } => format!("doubt {}", action.name),
            Wait::Undo { action, .. } => format!("undo {}", action.name),
            Wait::Time { due, at, .. } => {
                format!("time {} {}", due.method, at.timestamp_millis())
            }
            Wait::Worker { due, .. } => format!("worker {}", due.method),
        };
        waits.iter().map(text).collect()
    }

    #[test]
    fn what_is_due_waits_for_a_worker_and_what_runs_for_its_end() {
        let mut record = order(Mode::Idempotent);
        assert_eq!(told(&record), ["worker charge"]);
        begin(&mut record, Task::to_do(0));
        assert_eq!(told(&record), ["running charge Do"]);
        let (task, output) = (Task::to_do(0), Bson::Null);
        step(
            &mut record,
            Event::Succeeded {
                task,
                number: 1,
                output,
            },
        );
        begin(&mut record, Task::to_do(1));
        assert_eq!(told(&record), ["running send Do", "worker file"]);
    }

    #[test]
    fn a_backoff_waits_for_its_time_and_a_doubt_for_a_person() {
        let mut record = order(Mode::Idempotent);
        begin(&mut record, Task::to_do(0));
        fail(&mut record, Task::to_do(0), None, false);
        assert_eq!(told(&record), ["time charge 105000"]);
        record.inbox.push(Command {
            id: "c".to_owned(),
            order: Order::Resume,
            by: "ann".to_owned(),
            at: NOW,
        });
        assert_eq!(told(&record), ["mail 1", "time charge 105000"]);

        let mut record = order(Mode::Plain);
        begin(&mut record, Task::to_do(0));
        fail(
            &mut record,
            Task::to_do(0),
            Some(AttemptKind::Timeout),
            false,
        );
        assert_eq!(told(&record), ["doubt charge"]);
    }

    #[test]
    fn a_hold_is_told_with_what_still_runs() {
        let mut record = order(Mode::Idempotent);
        begin(&mut record, Task::to_do(0));
        let reason = "the bank is closed".to_owned();
        order_of(&mut record, Order::Pause { reason });
        assert_eq!(
            told(&record),
            ["hold the bank is closed", "running charge Do"]
        );
    }

    #[test]
    fn an_undo_waits_for_its_time_then_for_a_person() {
        let mut record = order(Mode::Plain);
        begin(&mut record, Task::to_do(0));
        fail(
            &mut record,
            Task::to_do(0),
            Some(AttemptKind::Timeout),
            false,
        );
        let reason = "a mistake".to_owned();
        order_of(&mut record, Order::Cancel { reason });
        assert_eq!(told(&record), ["doubt charge", "time refund 130000"]);

        let mut record = order(Mode::Idempotent);
        begin(&mut record, Task::to_do(0));
        fail(&mut record, Task::to_do(0), None, true);
        assert_eq!(told(&record), ["worker refund"]);
        begin(&mut record, Task::to_undo(0));
        assert_eq!(told(&record), ["running charge Undo"]);
        fail(&mut record, Task::to_undo(0), None, true);
        assert_eq!(told(&record), ["undo charge"]);
        let action = "charge".to_owned();
        order_of(&mut record, Order::Waive { action });
        assert_eq!(told(&record), Vec::<String>::new());
        assert!(record.state.is_terminal());
    }
}
