//! Milestones for tests, made by the state machine.

use std::time::Duration;

use bson::{Bson, DateTime, doc};
use milestone_runtime::{
    MilestoneRecord,
    core::{
        graph::{Plan, PlannedAction},
        lease::claim,
        limits::Limits,
        machine::{Event, Failed, NewMilestone, Task, advance, check},
        options::Mode,
        record::{AttemptError, AttemptKind, Command, Lease, Order},
        retry::RetryPolicy,
    },
    store::WorkerInfo,
};

/// 2026-01-01 03:00:00 UTC, and so many seconds.
pub(crate) fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(1_767_236_400_000 + 1_000 * seconds)
}

/// A worker that has told at 0 s that it lives.
pub(crate) fn worker(name: &str, methods: &[&str]) -> WorkerInfo {
    WorkerInfo {
        id: format!("{name}-x1"),
        name: name.to_owned(),
        methods: methods.iter().map(ToString::to_string).collect(),
        queues: vec!["default".to_owned()],
        since: at(-7_200),
        seen_at: at(0),
        next_at: at(60),
    }
}

/// An action of a graph: its name, how often it may run, what it waits for.
pub(crate) fn action(name: &str, mode: Mode, after: &[usize]) -> PlannedAction {
    PlannedAction::new(name, mode).after(after.iter().copied())
}

/// A milestone, and what happens to it. It starts at 0 s; each event takes a second.
pub(crate) struct Story {
    pub(crate) record: MilestoneRecord,
    seconds: i64,
}

impl Story {
    pub(crate) fn new(kind: &str, actions: Vec<PlannedAction>) -> Self {
        let new = NewMilestone {
            id: "order-7".into(),
            parameters: doc! { "item": "book" }.into(),
            ..NewMilestone::new(kind, Plan::new(actions).unwrap())
        };
        let record = MilestoneRecord::new(new, at(0), &Limits::new()).unwrap();
        Self { record, seconds: 0 }
    }

    /// reserve -> charge -> (send, file): charge is plain, reserve can be undone.
    pub(crate) fn order() -> Self {
        let mut reserve = action("reserve", Mode::Idempotent, &[]);
        reserve.undo = Some("release".to_owned());
        Self::new(
            "Order",
            vec![
                reserve,
                action("charge", Mode::Plain, &[0]),
                action("send", Mode::Idempotent, &[1]),
                action("file", Mode::Idempotent, &[1]),
            ],
        )
    }

    pub(crate) fn claim(mut self) -> Self {
        self.seconds += 1;
        let lease = Lease {
            owner: "bank-7-1".to_owned(),
            token: "t".to_owned(),
            since: at(self.seconds),
            until: at(self.seconds + 10),
        };
        let _ = claim(&mut self.record, lease);
        self
    }

    /// Nothing happens until then.
    pub(crate) fn wait_until(mut self, seconds: i64) -> Self {
        self.seconds = seconds;
        self
    }

    pub(crate) fn step(mut self, event: Event) -> Self {
        self.seconds += 1;
        let now = at(self.seconds);
        let _ = advance(&mut self.record, event, now, &Limits::new()).unwrap();
        self
    }

    pub(crate) fn begin(self, task: Task) -> Self {
        let worker = "bank-7-1".to_owned();
        self.step(Event::Begin {
            tasks: vec![task],
            worker,
        })
    }

    /// Begins it and ends it well.
    pub(crate) fn run(self, index: usize) -> Self {
        let (task, output) = (Task::to_do(index), Bson::Int32(7));
        let story = self.begin(task);
        let number = story.record.actions[index].attempts;
        story.step(Event::Succeeded {
            task,
            number,
            output,
        })
    }

    pub(crate) fn fail(self, task: Task, kind: Option<AttemptKind>, fatal: bool) -> Self {
        let tries = self.record.actions[task.action].tries(task.phase).unwrap();
        let number = tries.attempts;
        let error = AttemptError {
            kind: "BankError".to_owned(),
            message: "the bank does not answer".to_owned(),
            chain: vec!["connection refused".to_owned()],
            backtrace: Some("   0: bank::charge\n             at src/bank.rs:17:5".to_owned()),
            location: Some("src/bank.rs:17:5".to_owned()),
        };
        let failed = Failed {
            error,
            kind,
            fatal,
            retry_after: Some(Duration::from_secs(30)),
            policy: RetryPolicy::default(),
            jitter: 0.5,
            settle: Duration::from_secs(30),
        };
        self.step(Event::Failed {
            task,
            number,
            failed,
        })
    }

    pub(crate) fn send(mut self, order: Order) -> Self {
        self.record.mail += 1;
        self.record.inbox.push(Command {
            id: format!("command-{}", self.record.mail),
            order,
            by: "ann@desk-3".to_owned(),
            at: at(self.seconds),
        });
        self
    }

    pub(crate) fn command(self, order: Order) -> Self {
        self.send(order).step(Event::Mail)
    }

    pub(crate) fn hand_back(self) -> Self {
        self.step(Event::HandBack)
    }

    /// The document as it would be stored.
    pub(crate) fn told(self) -> MilestoneRecord {
        assert_eq!(check(&self.record), []);
        self.record
    }
}
