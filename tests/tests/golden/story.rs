//! A milestone that is driven by the machine, with dates, ids and workers that are always the same.

use std::time::Duration;

use bson::{Bson, DateTime, Document, oid::ObjectId};
use milestone_core::{
    graph::Plan,
    lease::claim,
    limits::Limits,
    machine::{Event, Failed, NewMilestone, Task, advance},
    patch::Patch,
    record::{AttemptError, AttemptKind, Command, Lease, MilestoneRecord, Order, Phase},
    retry::RetryPolicy,
};

pub(crate) struct Story {
    pub(crate) record: MilestoneRecord,
    pub(crate) document: Document,
    now: DateTime,
    limits: Limits,
}

const SETTLE: Duration = Duration::from_secs(30);

impl Story {
    pub(crate) fn new(kind: &str, plan: Plan, parameters: impl Into<Bson>) -> Self {
        Self::within(None, kind, plan, parameters)
    }

    /// One that is to end within that time.
    pub(crate) fn within(
        deadline: Option<Duration>,
        kind: &str,
        plan: Plan,
        parameters: impl Into<Bson>,
    ) -> Self {
        // 2026-01-01 03:00:00 UTC
        let now = DateTime::from_millis(1_767_236_400_000);
        let new = NewMilestone {
            id: ObjectId::from_bytes(*b"milestone-01").into(),
            parameters: parameters.into(),
            deadline,
            labels: [("tenant".to_owned(), "acme".to_owned())].into(),
            ..NewMilestone::new(kind, plan)
        };
        let limits = Limits::new();
        let record = MilestoneRecord::new(new, now, &limits).expect("a record");
        let document = record.to_document().expect("a document");
        Self {
            record,
            document,
            now,
            limits,
        }
    }

    /// Another worker takes it.
    pub(crate) fn claim(&mut self) {
        self.wait(1);
        let number = self.record.epoch + 1;
        let until = DateTime::from_millis(self.now.timestamp_millis() + 10_000);
        let lease = Lease {
            owner: worker(number),
            token: format!("token-{number}"),
            since: self.now,
            until,
        };
        let patch = claim(&mut self.record, lease);
        self.store(&patch);
        self.event(Event::TakenOver { settle: SETTLE });
    }

    pub(crate) fn begin(&mut self, names: &[&str]) {
        let tasks = names.iter().map(|name| self.task(name).0).collect();
        let worker = worker(self.record.epoch);
        self.event(Event::Begin { tasks, worker });
    }

    pub(crate) fn succeed(&mut self, name: &str, output: impl Into<Bson>) {
        self.wait(1);
        let (task, number) = self.task(name);
        self.event(Event::Succeeded {
            task,
            number,
            output: output.into(),
        });
    }

    pub(crate) fn run(&mut self, name: &str, output: impl Into<Bson>) {
        self.begin(&[name]);
        self.succeed(name, output);
    }

    pub(crate) fn fail(&mut self, name: &str, failed: Failed) {
        self.wait(1);
        let (task, number) = self.task(name);
        self.event(Event::Failed {
            task,
            number,
            failed,
        });
    }

    pub(crate) fn fail_for_good(&mut self, name: &str, message: &str) {
        self.fail(
            name,
            Failed {
                fatal: true,
                ..failed("Refused", message)
            },
        );
    }

    pub(crate) fn cut_off(&mut self, name: &str, kind: AttemptKind) {
        self.fail(
            name,
            Failed {
                kind: Some(kind),
                ..failed("Timeout", "it took longer than its timeout of 30s")
            },
        );
    }

    pub(crate) fn hand_back(&mut self) {
        self.event(Event::HandBack);
    }

    /// A command comes.
    pub(crate) fn order(&mut self, order: Order) {
        self.wait(1);
        self.record.mail += 1;
        let id = format!("command-{}", self.record.mail);
        self.record.inbox.push(Command {
            id,
            order,
            by: "ann@desk-3".to_owned(),
            at: self.now,
        });
        self.document = self.record.to_document().expect("a document");
    }

    pub(crate) fn mail(&mut self) {
        self.event(Event::Mail);
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now = DateTime::from_millis(self.now.timestamp_millis() + seconds * 1000);
    }

    fn event(&mut self, event: Event) {
        let patch =
            advance(&mut self.record, event, self.now, &self.limits).expect("an event that fits");
        self.store(&patch);
    }

    fn store(&mut self, patch: &Patch) {
        self.record.rev += 1;
        patch
            .apply_to(&mut self.document, self.record.rev)
            .expect("a patch that fits");
    }

    /// The task of that name, and the number of its last attempt. `refund of debit` is the undo of `debit`, or its verify.
    fn task(&self, name: &str) -> (Task, i64) {
        let (helper, name) = match name.split_once(" of ") {
            Some((helper, name)) => (Some(helper), name),
            None => (None, name),
        };
        let (index, action) = self.record.action(name).expect("an action of that name");
        let tries = |phase| action.tries(phase).expect("it has that phase");
        let phase = Phase::ALL
            .into_iter()
            .find(|phase| {
                helper.is_some() && action.tries(*phase).and_then(|tries| tries.method) == helper
            })
            .unwrap_or_default();
        let task = Task {
            action: index,
            phase,
        };
        (task, tries(phase).attempts)
    }
}

fn worker(number: i64) -> String {
    format!("bank-7-{number}")
}

/// An error with all that an error may have, retried in a second.
pub(crate) fn failed(kind: &str, message: &str) -> Failed {
    Failed {
        error: AttemptError {
            kind: kind.to_owned(),
            message: message.to_owned(),
            chain: vec!["connection refused".to_owned()],
            backtrace: Some("   0: bank::credit\n             at src/bank.rs:17:5".to_owned()),
            location: Some("src/bank.rs:17:5".to_owned()),
        },
        kind: None,
        fatal: false,
        retry_after: None,
        policy: RetryPolicy::new(),
        jitter: 1.0,
        settle: SETTLE,
    }
}
