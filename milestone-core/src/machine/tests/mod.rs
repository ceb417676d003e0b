//! Single rules of the machine. Each change is also applied to the document, and every state is checked against the invariants.

mod attempts;
mod claim;
mod commands;
mod create;
mod deadline;
mod doubt;
mod mongo_milestone;
mod report;
mod schedule;
mod suspect;
mod undo;
mod verify;

use std::time::Duration;

use bson::{Bson, DateTime, Document};

use super::{Event, Failed, NewMilestone, Task, TransitionError, advance, check, due_tasks};
use crate::{
    graph::{Plan, PlannedAction},
    lease::claim,
    limits::Limits,
    options::Mode,
    record::{
        ActionState, Answer, AttemptError, AttemptKind, Command, Lease, MilestoneRecord, Order,
        Phase, Status, UndoState,
    },
    retry::RetryPolicy,
};

/// An action that waits for those at these places.
fn action(name: &str, mode: Mode, after: &[usize]) -> PlannedAction {
    PlannedAction::new(name, mode).after(after.iter().copied())
}

/// The same, with an undo named `undo-..`.
fn undoable(name: &str, mode: Mode, after: &[usize]) -> PlannedAction {
    let mut action = action(name, mode, after);
    action.undo = Some(format!("undo-{name}"));
    action
}

/// One milestone, its document, and the time.
struct Bench {
    record: MilestoneRecord,
    document: Document,
    limits: Limits,
    now: DateTime,
    commands: usize,
}

const SETTLE: Duration = Duration::from_secs(30);

impl Bench {
    fn new(actions: Vec<PlannedAction>) -> Self {
        Self::with_limits(actions, Limits::new())
    }

    /// One that is to end within that time.
    fn with_deadline(actions: Vec<PlannedAction>, deadline: Duration) -> Self {
        Self::of(actions, Limits::new(), Some(deadline))
    }

    fn with_limits(actions: Vec<PlannedAction>, limits: Limits) -> Self {
        Self::of(actions, limits, None)
    }

    fn of(actions: Vec<PlannedAction>, limits: Limits, deadline: Option<Duration>) -> Self {
        let now = DateTime::from_millis(1_000_000);
        let plan = Plan::new(actions).unwrap();
        let new = NewMilestone {
            id: "it".into(),
            deadline,
            ..NewMilestone::new("Test", plan)
        };
        let record = MilestoneRecord::new(new, now, &limits).unwrap();
        let document = record.to_document().unwrap();
        let mut bench = Self {
            record,
            document,
            limits,
            now,
            commands: 0,
        };
        bench.claim();
        bench
    }

    /// A worker takes it, from another one if need be.
    fn claim(&mut self) {
        let number = self.record.epoch + 1;
        let until = DateTime::from_millis(self.now.timestamp_millis() + 10_000);
        let lease = Lease {
            owner: "w".to_owned(),
            token: format!("token-{number}"),
            since: self.now,
            until,
        };
        let patch = claim(&mut self.record, lease);
        self.record.rev += 1;
        patch.apply_to(&mut self.document, self.record.rev).unwrap();
        self.must(Event::TakenOver { settle: SETTLE });
    }

    fn event(&mut self, event: Event) -> Result<(), TransitionError> {
        let patch = advance(&mut self.record, event, self.now, &self.limits)?;
        self.record.rev += 1;
        patch.apply_to(&mut self.document, self.record.rev).unwrap();
        assert_eq!(self.document, self.record.to_document().unwrap());
        assert_eq!(check(&self.record), []);
        Ok(())
    }

    fn must(&mut self, event: Event) {
        self.event(event).unwrap();
    }

    fn task(&self, name: &str) -> Task {
        let (phase, name) = match name.split_once('-') {
            Some(("undo", name)) => (Phase::Undo, name),
            Some(("verify", name)) => (Phase::Verify, name),
            _ => (Phase::Do, name),
        };
        let (action, _) = self.record.action(name).unwrap();
        Task { action, phase }
    }

    fn number(&self, name: &str) -> i64 {
        let task = self.task(name);
        let action = &self.record.actions[task.action];
        action.tries(task.phase).unwrap().attempts
    }

    fn begin(&mut self, names: &[&str]) {
        self.try_begin(names).unwrap();
    }

    fn try_begin(&mut self, names: &[&str]) -> Result<(), TransitionError> {
        let tasks = names.iter().map(|name| self.task(name)).collect();
        self.event(Event::Begin {
            tasks,
            worker: "w".to_owned(),
        })
    }

    fn succeed(&mut self, name: &str, output: impl Into<Bson>) {
        let (task, number) = (self.task(name), self.number(name));
        self.must(Event::Succeeded {
            task,
            number,
            output: output.into(),
        });
    }

    fn fail(&mut self, name: &str, failed: Failed) {
        let (task, number) = (self.task(name), self.number(name));
        self.must(Event::Failed {
            task,
            number,
            failed,
        });
    }

    /// Begins and succeeds, one after the other.
    fn run(&mut self, names: &[&str]) {
        for name in names {
            self.begin(&[name]);
            self.succeed(name, *name);
        }
    }

    /// A command comes and is carried out.
    fn order(&mut self, order: Order) -> Answer {
        self.put(order);
        self.must(Event::Mail);
        self.record.answers.last().cloned().unwrap()
    }

    /// A command comes; a worker takes the milestone for it, if nobody has it.
    fn put(&mut self, order: Order) {
        self.commands += 1;
        let id = format!("command-{}", self.commands);
        let (now, by) = (self.now, "ann".to_owned());
        self.record.inbox.push(Command {
            id,
            order,
            by,
            at: now,
        });
        self.record.mail += 1;
        self.document = self.record.to_document().unwrap();
        if self.record.lease.is_none() {
            let until = DateTime::from_millis(now.timestamp_millis() + 10_000);
            let token = format!("token-{}", self.record.epoch + 1);
            let patch = claim(
                &mut self.record,
                Lease {
                    owner: "w".to_owned(),
                    token,
                    since: now,
                    until,
                },
            );
            patch.apply_to(&mut self.document, self.record.rev).unwrap();
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.now = DateTime::from_millis(self.now.timestamp_millis() + seconds * 1000);
    }

    fn state(&self, name: &str) -> ActionState {
        self.record.action(name).unwrap().1.state
    }

    fn undo(&self, name: &str) -> UndoState {
        self.record
            .action(name)
            .unwrap()
            .1
            .undo
            .as_ref()
            .unwrap()
            .state
    }

    fn status(&self) -> Status {
        self.record.state
    }

    /// What may begin, now or later, by name.
    fn due(&self) -> Vec<String> {
        let due = due_tasks(&self.record).into_iter();
        due.map(|due| {
            let name = &self.record.actions[due.task.action].name;
            match due.task.phase {
                Phase::Do => name.clone(),
                Phase::Verify => format!("verify-{name}"),
                Phase::Undo => format!("undo-{name}"),
            }
        })
        .collect()
    }
}

/// An error like another, without a retry.
fn fatal() -> Failed {
    Failed {
        fatal: true,
        ..error()
    }
}

/// An error that is retried without end, after 1 s, 2 s and so on.
fn error() -> Failed {
    Failed {
        error: AttemptError {
            kind: "Error".to_owned(),
            message: "no".to_owned(),
            ..AttemptError::default()
        },
        kind: None,
        fatal: false,
        retry_after: None,
        policy: RetryPolicy::new(),
        jitter: 1.0,
        settle: SETTLE,
    }
}

fn of_kind(kind: AttemptKind) -> Failed {
    Failed {
        kind: Some(kind),
        ..error()
    }
}
