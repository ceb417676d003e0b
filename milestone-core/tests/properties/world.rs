//! One stored milestone, the workers that come and go, and the checks after every write.

use std::{collections::BTreeSet, time::Duration};

use bson::{Bson, DateTime, Document, doc};
use milestone_core::{
    graph::Plan,
    lease::{Seen, claim},
    limits::Limits,
    machine::{
        Event, NewMilestone, Task, TransitionError, advance, apply, check, due_tasks, is_overdue,
    },
    patch::Patch,
    record::{
        ActionKind, ActionState, AttemptKind, Command, Due, Lease, MilestoneRecord, Next, Order,
        Phase, Status, UndoState, VerifyState,
    },
    verdict::Verdict,
};

use crate::{history::Step, rules};

pub(crate) struct World {
    /// As a worker has it in memory.
    record: MilestoneRecord,
    /// As it is stored, with fields that only a later version knows.
    document: Document,
    /// The document at an earlier time, and all patches since merged into one.
    base: Document,
    merged: Patch,
    now: DateTime,
    limits: Limits,
    commands: usize,
    claims: usize,
    stale: bool,
    moves: BTreeSet<Move>,
}

const OUTPUT: usize = 2048;

impl World {
    pub(crate) fn new(plan: Plan, deadline: Option<Duration>) -> Self {
        let now = DateTime::from_millis(1_000_000);
        let mut limits = Limits::new().output(OUTPUT);
        limits.report = 48 * 1024;
        limits.action_report = 12 * 1024;
        let new = NewMilestone {
            parameters: doc! { "$date": 1_i64 }.into(),
            deadline,
            ..NewMilestone::new("Random", plan)
        };
        let record = MilestoneRecord::new(new, now, &limits).expect("a record");
        assert_eq!(check(&record), []);
        let mut document = record.to_document().expect("a document");
        plant(&mut document);
        Self {
            base: document.clone(),
            document,
            record,
            merged: Patch::default(),
            now,
            limits,
            commands: 0,
            claims: 0,
            stale: false,
            moves: BTreeSet::new(),
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Claim { lost } => self.claim(lost),
            Step::Work => {
                if self.record.lease.is_none() {
                    let at = self.record.next.as_ref().map_or(self.now, |next| next.at);
                    self.now = self.now.max(at);
                    self.claim(false);
                }
                let due = self.due_now();
                self.begin(&due);
            }
            Step::Begin(bits) => {
                let due = self.due_now();
                let chosen = due
                    .into_iter()
                    .enumerate()
                    .filter(|(at, _)| bits & (1 << (at % 8)) != 0);
                let tasks: Vec<Task> = chosen.map(|(_, task)| task).collect();
                self.begin(&tasks);
            }
            Step::Succeed(which, output) => {
                if let Some((task, number)) = self.choose(which) {
                    let output = if task.phase == Phase::Verify {
                        verdict(which, output)
                    } else {
                        output
                    };
                    self.must(Event::Succeeded {
                        task,
                        number,
                        output,
                    });
                }
            }
            Step::Fail(which, failed) => {
                if let Some((task, number)) = self.choose(which) {
                    self.must(Event::Failed {
                        task,
                        number,
                        failed,
                    });
                }
            }
            Step::Send(id, order) => self.send(format!("command-{}", id % 32), order),
            Step::Mail => {
                if self.record.lease.is_some() {
                    self.must(Event::Mail);
                }
            }
            Step::HandBack => {
                let runs = !self.running().is_empty();
                match self.event(Event::HandBack) {
                    Ok(()) => assert!(!runs),
                    Err(TransitionError::StillRunning { .. }) => assert!(runs),
                    Err(TransitionError::NotHeld) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Wait(seconds) => self.wait(i64::from(seconds) * 1000),
            Step::Stale(action, number) => self.stale(usize::from(action) % 10, number),
            Step::BeginAnything(which) => self.begin_anything(usize::from(which)),
        }
    }

    /// From now on all goes well: actions succeed, what is in doubt is resolved, holds end, what cannot be undone is waived.
    pub(crate) fn run_to_the_end(&mut self) {
        for _ in 0..40 * self.record.actions.len() + 40 {
            if self.is_over() {
                return;
            }
            if self.record.lease.is_none() {
                assert!(
                    self.record.next.is_some() || self.needs_somebody(),
                    "nobody holds it, nothing is due, and nobody is asked: {:#?}",
                    self.record
                );
                self.help();
                let at = self.record.next.as_ref().map_or(self.now, |next| next.at);
                self.now = self.now.max(at);
                self.claim(false);
                continue;
            }
            if !self.record.inbox.is_empty() {
                self.must(Event::Mail);
                continue;
            }
            let due = self.due_now();
            if !due.is_empty() {
                self.begin(&due);
            } else if let Some((task, number)) = self.running().first().copied() {
                let output = if task.phase == Phase::Verify {
                    verdict(u8::try_from(number % 2).expect("a bit"), 1.into())
                } else {
                    1.into()
                };
                self.must(Event::Succeeded {
                    task,
                    number,
                    output,
                });
            } else {
                self.must(Event::HandBack);
            }
        }
        panic!("it does not end: {:#?}", self.record);
    }

    fn is_over(&self) -> bool {
        self.record.state.is_terminal() && self.record.inbox.is_empty()
    }

    /// Whether `milestone show` tells that it waits for an operator.
    fn needs_somebody(&self) -> bool {
        let actions = &self.record.actions;
        let undo_failed = |state| state == UndoState::Failed;
        self.record.hold.is_some()
            || actions.iter().any(|action| {
                let verify = action.verify.as_ref();
                action.state == ActionState::InDoubt
                    && verify.is_none_or(|verify| verify.state == VerifyState::Failed)
            })
            || actions.iter().any(|action| {
                action
                    .undo
                    .as_ref()
                    .is_some_and(|undo| undo_failed(undo.state))
            })
    }

    /// The operator does what the milestone waits for, if it waits for that.
    fn help(&mut self) {
        if self.record.hold.is_some() {
            self.send_new(Order::Resume);
        }
        if self.record.next.is_some() {
            return;
        }
        for action in self.record.actions.clone() {
            if action.state == ActionState::InDoubt {
                let applied = action.attempts % 2 == 0;
                self.send_new(Order::Resolve {
                    action: action.name.clone(),
                    attempt: None,
                    applied,
                    output: 1.into(),
                });
            }
            if action
                .undo
                .is_some_and(|undo| undo.state == UndoState::Failed)
            {
                self.send_new(Order::Waive {
                    action: action.name,
                });
            }
        }
    }

    fn claim(&mut self, lost: bool) {
        match &self.record.lease {
            Some(_) if !lost => return,
            // It was in the eyes of its worker; the next one comes when the lease is over.
            Some(lease) => self.now = self.now.max(lease.until),
            None => {
                let Some(next) = &self.record.next else {
                    return;
                };
                if next.at > self.now {
                    return;
                }
            }
        }
        self.claims += 1;
        let seen = Seen::of(&self.record);
        let before = self.record.clone();
        let until = DateTime::from_millis(self.now.timestamp_millis() + 10_000);
        let lease = Lease {
            owner: format!("worker-{}", self.claims % 3),
            token: format!("token-{}", self.claims),
            since: self.now,
            until,
        };
        let patch = claim(&mut self.record, lease);
        assert_ne!(seen, Seen::of(&self.record));
        self.committed(&before, &patch);
        self.must(Event::TakenOver {
            settle: Duration::from_secs(30),
        });
        for (old, new) in before.actions.iter().zip(&self.record.actions) {
            if old.state == ActionState::Running && !old.mode.repeatable() {
                assert_eq!(
                    new.state,
                    ActionState::InDoubt,
                    "`{}` is plain, and its worker is no more",
                    new.name
                );
            }
        }
        if self.record.lease.is_some() {
            // Its own attempts it does not take over.
            let before = self.record.clone();
            let again = apply(
                &self.record,
                Event::TakenOver {
                    settle: Duration::ZERO,
                },
                self.now,
                &self.limits,
            );
            assert!(again.expect("held").is_empty() && before == self.record);
        }
    }

    fn begin(&mut self, tasks: &[Task]) {
        if self.record.lease.is_none() {
            return;
        }
        if is_overdue(&self.record, self.now) {
            self.must(Event::Overdue);
            assert!(self.record.unwind.is_some() && !is_overdue(&self.record, self.now));
            return;
        }
        let result = self.event(Event::Begin {
            tasks: tasks.to_vec(),
            worker: "w".to_owned(),
        });
        let running = self.running();
        match result {
            Ok(()) => assert!(
                tasks
                    .iter()
                    .all(|task| running.iter().any(|(other, _)| other == task))
            ),
            // A command that was not read yet prevents it.
            Err(error) => assert!(!self.record.inbox.is_empty(), "{error}"),
        }
    }

    fn begin_anything(&mut self, which: usize) {
        let due = self.due_now();
        let action = which % (self.record.actions.len() + 1);
        let task = Task {
            action,
            phase: Phase::ALL[which % Phase::ALL.len()],
        };
        let begin = |tasks| Event::Begin {
            tasks,
            worker: "w".to_owned(),
        };
        if !due.contains(&task) && self.record.inbox.is_empty() {
            assert!(self.event(begin(vec![task])).is_err());
        }
        if let Some(task) = due.first()
            && !is_overdue(&self.record, self.now)
        {
            assert!(
                self.event(begin(vec![*task, *task])).is_err(),
                "twice in one event"
            );
        }
    }

    fn stale(&mut self, action: usize, number: i64) {
        self.stale = true;
        for phase in Phase::ALL {
            let task = Task { action, phase };
            if !self.running().contains(&(task, number)) {
                assert!(
                    self.event(Event::Succeeded {
                        task,
                        number,
                        output: Bson::Null
                    })
                    .is_err()
                );
            }
        }
    }

    /// As a store does it.
    fn send(&mut self, id: String, order: Order) {
        let known = self.record.inbox.iter().any(|command| command.id == id)
            || self.record.answers.iter().any(|answer| answer.id == id);
        if known || !order.accepted_in().contains(&self.record.state) {
            return;
        }
        let before = self.record.clone();
        let queue = self.record.mail_queue().to_owned();
        self.record.inbox.push(Command {
            id,
            order,
            by: "me".to_owned(),
            at: self.now,
        });
        self.record.mail += 1;
        if self.record.lease.is_none() {
            self.record.due.push(Due {
                queue: queue.clone(),
                at: self.now,
                method: String::new(),
            });
            self.record.next = Some(Next {
                queue,
                at: self.now,
            });
        }
        self.record.rev += 1;
        rules::check_step(&before, &self.record);
        self.record.rev -= 1;
        assert_eq!(check(&self.record), []);
        // The store wrote it, past any patch.
        let mut document = self.record.to_document().expect("a document");
        plant(&mut document);
        self.base.clone_from(&document);
        self.document = document;
        self.merged = Patch::default();
    }

    fn send_new(&mut self, order: Order) {
        self.commands += 1;
        self.send(format!("help-{}", self.commands), order);
    }

    fn wait(&mut self, millis: i64) {
        self.now = DateTime::from_millis(self.now.timestamp_millis() + millis);
    }

    fn must(&mut self, event: Event) {
        let text = format!("{event:?}");
        if let Err(error) = self.event(event) {
            panic!("{error}: {text} of {:#?}", self.record);
        }
    }

    fn event(&mut self, event: Event) -> Result<(), TransitionError> {
        let before = self.record.clone();
        let patch = match advance(&mut self.record, event.clone(), self.now, &self.limits) {
            Ok(patch) => patch,
            Err(error) => {
                assert_eq!(before, self.record, "after {error}");
                return Err(error);
            }
        };
        let guarded = matches!(event, Event::Begin { ref tasks, .. } if !tasks.is_empty())
            || (matches!(event, Event::HandBack) || self.record.lease.is_none())
            || before.inbox.len() != self.record.inbox.len();
        assert!(
            !guarded || patch.mail() == Some(before.mail),
            "{event:?} must not overlook a command"
        );
        assert_eq!(patch.releases(), self.record.lease.is_none());
        assert_eq!(
            apply(&before, event, self.now, &self.limits).as_ref(),
            Ok(&patch),
            "the same again"
        );
        self.committed(&before, &patch);
        Ok(())
    }

    /// The patch is stored: the document then is what the record is, and all is well with it.
    fn committed(&mut self, before: &MilestoneRecord, patch: &Patch) {
        check_paths(patch);
        self.record.rev += 1;
        let rev = self.record.rev;
        let bytes = self.document.to_vec().expect("bytes");
        let bytes = patch
            .apply_to_bytes(&bytes, rev)
            .expect("the patch fits the bytes");
        assert_eq!(
            patch.to_raw_update(rev).expect("an update").as_bytes(),
            patch.to_update(rev).to_vec().expect("bytes"),
        );
        patch
            .apply_to(&mut self.document, rev)
            .expect("the patch fits");
        let mut expected = self.record.to_document().expect("a document");
        plant(&mut expected);
        assert_eq!(self.document, expected, "after {patch:#?}");
        assert_eq!(
            bytes,
            self.document.to_vec().expect("bytes"),
            "after {patch:#?}"
        );
        let read = MilestoneRecord::from_document(self.document.clone()).expect("a milestone");
        assert_eq!(read, self.record);

        let expected = (
            patch.mail().or(self.merged.mail()),
            patch.releases() || self.merged.releases(),
        );
        self.merged.merge(patch.clone());
        assert_eq!((self.merged.mail(), self.merged.releases()), expected);
        let mut merged = self.base.clone();
        self.merged
            .apply_to(&mut merged, rev)
            .expect("the merged patch fits");
        assert_eq!(merged, self.document, "patches merged: {:#?}", self.merged);
        let bytes = self
            .merged
            .apply_to_bytes(&self.base.to_vec().expect("bytes"), rev)
            .expect("the merged patch fits the bytes");
        assert_eq!(Document::from_reader(&bytes[..]).expect("bytes"), merged);
        check_paths(&self.merged);
        if rev % 7 == 0 {
            self.base = merged;
            self.merged = Patch::default();
        }
        assert_eq!(check(&self.record), []);
        rules::check_step(before, &self.record);
        self.moves.extend(moves(before, &self.record));
    }

    /// Which states have been left for which others.
    pub(crate) fn moves(&self) -> &BTreeSet<Move> {
        &self.moves
    }

    fn due_now(&self) -> Vec<Task> {
        let due = due_tasks(&self.record).into_iter();
        due.filter(|due| due.at.is_none_or(|at| at <= self.now))
            .map(|due| due.task)
            .collect()
    }

    fn running(&self) -> Vec<(Task, i64)> {
        let mut running = Vec::new();
        for (index, action) in self.record.actions.iter().enumerate() {
            for phase in Phase::ALL {
                let task = Task {
                    action: index,
                    phase,
                };
                running.extend(
                    action
                        .running_in(phase)
                        .map(|running| (task, running.number)),
                );
            }
        }
        running
    }

    fn choose(&self, which: u8) -> Option<(Task, i64)> {
        let running = self.running();
        let at = usize::from(which).checked_rem(running.len())?;
        Some(running[at])
    }

    /// What this milestone shows of what histories can reach.
    pub(crate) fn seen(&self) -> BTreeSet<&'static str> {
        let record = &self.record;
        let undo = |state| {
            record
                .actions
                .iter()
                .any(|action| action.undo.as_ref().is_some_and(|undo| undo.state == state))
        };
        let verify = |state| {
            let mut verifies = record
                .actions
                .iter()
                .filter_map(|action| action.verify.as_ref());
            verifies.any(|verify| verify.state == state)
        };
        let verified = |attempt: &milestone_core::record::Attempt| {
            attempt.success == Some(true) && attempt.phase == Phase::Verify
        };
        let in_doubt = record
            .actions
            .iter()
            .any(|action| action.state == ActionState::InDoubt);
        let refused = |attempt: &milestone_core::record::Attempt| {
            attempt.kind == Some(AttemptKind::Refused) && attempt.phase == Phase::Do
        };
        let all = [
            (record.state.as_str(), true),
            ("hold", record.hold.is_some()),
            ("losses", record.losses > 1),
            ("verify failed", verify(VerifyState::Failed)),
            ("verified", record.report.iter().any(verified)),
            (
                "overdue",
                record
                    .unwind
                    .as_ref()
                    .is_some_and(|unwind| unwind.reason.contains("deadline")),
            ),
            ("undo failed", undo(UndoState::Failed)),
            ("undo waived", undo(UndoState::Waived)),
            ("undo done", undo(UndoState::Done)),
            ("refused", record.report.iter().any(refused)),
            (
                "fork",
                record.actions.iter().any(|action| {
                    action.kind == ActionKind::Fork && action.state == ActionState::Completed
                }),
            ),
            (
                "answers no",
                record.answers.iter().any(|answer| !answer.done),
            ),
            (
                "mail to a failed one",
                record.state == Status::Failed && !record.inbox.is_empty(),
            ),
            ("stale", self.stale),
            (
                "in doubt while undoing",
                record.state == Status::Undoing && in_doubt,
            ),
        ];
        all.into_iter()
            .filter(|(_, seen)| *seen)
            .map(|(name, _)| name)
            .collect()
    }
}

/// Fields that this version does not know.
fn plant(document: &mut Document) {
    document.insert("later", doc! { "unknown": 1 });
    for action in document.get_array_mut("actions").expect("actions") {
        let action = action.as_document_mut().expect("an action");
        action.insert("note", "by hand");
        for part in ["undo", "verify"] {
            if let Ok(part) = action.get_document_mut(part) {
                part.insert("note", "by hand");
            }
        }
    }
}

/// No path of an update is the beginning of another: `MongoDB` would refuse it.
fn check_paths(patch: &Patch) {
    let update = patch.to_update(1);
    let fields = update
        .iter()
        .flat_map(|(_, fields)| fields.as_document().expect("fields").keys());
    let paths: BTreeSet<String> = fields.map(|path| format!("{path}.")).collect();
    let count: usize = update
        .values()
        .map(|fields| fields.as_document().expect("fields").len())
        .sum();
    assert_eq!(paths.len(), count, "a path is there twice: {update}");
    let sorted: Vec<&String> = paths.iter().collect();
    assert!(
        sorted
            .windows(2)
            .all(|pair| !pair[1].starts_with(pair[0].as_str())),
        "paths conflict: {update}"
    );
}

/// What a verify function says, now and then something that is no verdict.
fn verdict(which: u8, output: Bson) -> Bson {
    let verdict = match which % 4 {
        0 => Verdict::NotApplied,
        1 | 2 => Verdict::Applied(output),
        _ => return output,
    };
    bson::serialize_to_bson(&verdict).expect("a value")
}

/// Of the `milestone`, an `action`, a `verify` or an `undo`: from this state to that one.
pub(crate) type Move = (&'static str, String, String);

fn moves(before: &MilestoneRecord, after: &MilestoneRecord) -> Vec<Move> {
    fn of<S: serde::Serialize>(what: &'static str, from: &S, to: &S) -> Move {
        let name = |state: &S| match bson::serialize_to_bson(state) {
            Ok(Bson::String(name)) => name,
            other => panic!("a state is a string: {other:?}"),
        };
        (what, name(from), name(to))
    }
    let mut moves = vec![of("milestone", &before.state, &after.state)];
    for (old, new) in before.actions.iter().zip(&after.actions) {
        moves.push(of("action", &old.state, &new.state));
        if let (Some(old), Some(new)) = (&old.verify, &new.verify) {
            moves.push(of("verify", &old.state, &new.state));
        }
        if let (Some(old), Some(new)) = (&old.undo, &new.undo) {
            moves.push(of("undo", &old.state, &new.state));
        }
    }
    moves.retain(|(_, from, to)| from != to);
    moves
}
