//! The real documents and patches of all states, each kept once, and what the real state machine makes of them, each worked out once.
//! So a state is a few numbers, and a step is a look into a table.

use std::{collections::HashMap, time::Duration};

use bson::{DateTime, Document};
use milestone_core::{
    lease::Seen,
    limits::Limits,
    machine::{Begins, Event, Failed, Task, advance, check, claim, due_tasks},
    patch::Patch,
    record::{
        ActionState, AttemptError, AttemptKind, Command, Due, Lease, MilestoneRecord, Next, Order,
        Phase, Running,
    },
    retry::RetryPolicy,
};

use crate::{
    canonical::{self, NOW, TICK, in_ticks},
    rules,
};

/// A record, as it is stored or as a worker has it in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RecordId(u32);

/// A patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PatchId(u32);

/// The token of a lease. Those that nobody knows any more are used again.
pub(crate) type Token = u8;

/// An event of the state machine, in few words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ev {
    TakenOver,
    Begin(Vec<Task>),
    Succeeded(Task, i64),
    Failed(Task, i64, Cause),
    Mail,
    HandBack,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// By an error of its own.
    Error,
    /// Its worker shut down before the body could begin.
    NotBegun,
    /// Its worker shut down, and it was cut off.
    CutOff,
}

#[derive(Default)]
pub(crate) struct Pool {
    records: Vec<MilestoneRecord>,
    patches: Vec<Patch>,
    record_ids: HashMap<Vec<u8>, RecordId>,
    patch_ids: HashMap<Vec<u8>, PatchId>,
    events: HashMap<(RecordId, Ev), Result<(RecordId, PatchId), String>>,
    applied: HashMap<(RecordId, PatchId), RecordId>,
    merged: HashMap<(PatchId, PatchId), PatchId>,
    claims: HashMap<(RecordId, Token, i8), (RecordId, PatchId)>,
    later_records: HashMap<RecordId, RecordId>,
    later_patches: HashMap<PatchId, PatchId>,
    renewals: HashMap<(RecordId, i8, bool), RecordId>,
    sent: HashMap<(RecordId, usize, bool), Option<RecordId>>,
    mixed: HashMap<(RecordId, RecordId), RecordId>,
    numbered: HashMap<(RecordId, i64), RecordId>,
    in_memory: HashMap<RecordId, RecordId>,
    due: HashMap<RecordId, Vec<Task>>,
    checked: HashMap<(RecordId, RecordId), Result<(), String>>,
    agreed: HashMap<(RecordId, RecordId), bool>,
}

impl Pool {
    pub(crate) fn record(&mut self, record: &MilestoneRecord) -> RecordId {
        self.keep(record, 0)
    }

    fn keep(&mut self, record: &MilestoneRecord, ticks: i64) -> RecordId {
        let record = canonical::record(record, ticks);
        let key = bson::serialize_to_vec(&record.to_document().expect("a document"));
        let records = &mut self.records;
        *self
            .record_ids
            .entry(key.expect("a document"))
            .or_insert_with(|| {
                records.push(record);
                RecordId(u32::try_from(records.len() - 1).expect("few"))
            })
    }

    fn keep_patch(&mut self, patch: &Patch, ticks: i64) -> PatchId {
        let patch = canonical::patch(patch, ticks);
        let patches = &mut self.patches;
        *self
            .patch_ids
            .entry(canonical::key_of(&patch))
            .or_insert_with(|| {
                patches.push(patch);
                PatchId(u32::try_from(patches.len() - 1).expect("few"))
            })
    }

    pub(crate) fn get(&self, id: RecordId) -> &MilestoneRecord {
        &self.records[id.0 as usize]
    }

    pub(crate) fn patch(&self, id: PatchId) -> &Patch {
        &self.patches[id.0 as usize]
    }

    /// How many different documents and patches there are.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.records.len(), self.patches.len())
    }

    /// What the state machine makes of an event.
    pub(crate) fn advance(
        &mut self,
        id: RecordId,
        event: &Ev,
    ) -> Result<(RecordId, PatchId), String> {
        let key = (id, event.clone());
        if let Some(known) = self.events.get(&key) {
            return known.clone();
        }
        let mut record = self.get(id).clone();
        let event = event_of(&record, event);
        let result = match advance(&mut record, event, NOW, &Limits::new()) {
            Ok(patch) => Ok((self.keep(&record, 0), self.keep_patch(&patch, 0))),
            Err(error) => Err(error.to_string()),
        };
        self.events.insert(key, result.clone());
        result
    }

    /// Two patches as one.
    pub(crate) fn merge(&mut self, first: PatchId, later: PatchId) -> PatchId {
        if let Some(known) = self.merged.get(&(first, later)) {
            return *known;
        }
        let mut patch = self.patch(first).clone();
        patch.merge(self.patch(later).clone());
        let merged = self.keep_patch(&patch, 0);
        self.merged.insert((first, later), merged);
        merged
    }

    /// What a store makes of a patch, past all filters.
    pub(crate) fn apply(&mut self, id: RecordId, patch: PatchId, rev: i64) -> RecordId {
        // `rev` belongs to the patch, but for a broken store.
        let right = self.get(id).rev + 1 == rev;
        if let Some(known) = self.applied.get(&(id, patch)).filter(|_| right) {
            return *known;
        }
        let mut document: Document = self.get(id).to_document().expect("a document");
        self.patch(patch)
            .apply_to(&mut document, rev)
            .expect("the patch fits");
        let record = MilestoneRecord::from_document(document).expect("a milestone");
        let after = self.keep(&record, 0);
        if right {
            self.applied.insert((id, patch), after);
        }
        after
    }

    /// How a worker takes a milestone: the document as it will be, and the patch.
    pub(crate) fn claim(&mut self, id: RecordId, token: Token, until: i8) -> (RecordId, PatchId) {
        if let Some(known) = self.claims.get(&(id, token, until)) {
            return *known;
        }
        let mut record = self.get(id).clone();
        let lease = Lease {
            owner: "w".to_owned(),
            token: token.to_string(),
            since: NOW,
            until: in_ticks(until),
        };
        let begins = Begins {
            methods: ["a".to_owned(), "b".to_owned()].into(),
            now: NOW,
            limits: Limits::new(),
        };
        let patch = claim(&mut record, lease, Some(&begins));
        record.rev += 1;
        let claimed = (self.keep(&record, 0), self.keep_patch(&patch, 0));
        self.claims.insert((id, token, until), claimed);
        claimed
    }

    /// The same a tick later.
    pub(crate) fn later(&mut self, id: RecordId) -> RecordId {
        if let Some(known) = self.later_records.get(&id) {
            return *known;
        }
        let later = self.keep(&self.get(id).clone(), 1);
        self.later_records.insert(id, later);
        later
    }

    pub(crate) fn later_patch(&mut self, id: PatchId) -> PatchId {
        if let Some(known) = self.later_patches.get(&id) {
            return *known;
        }
        let later = self.keep_patch(&self.patch(id).clone(), 1);
        self.later_patches.insert(id, later);
        later
    }

    /// A lease that ends later, by `$max`; a broken store sets it.
    pub(crate) fn renew(&mut self, id: RecordId, until: i8, sets: bool) -> RecordId {
        if let Some(known) = self.renewals.get(&(id, until, sets)) {
            return *known;
        }
        let mut record = self.get(id).clone();
        let raise = |date: &mut DateTime| {
            *date = if sets {
                in_ticks(until)
            } else {
                in_ticks(until).max(*date)
            };
        };
        if let Some(lease) = &mut record.lease {
            raise(&mut lease.until);
        }
        if let Some(next) = &mut record.next {
            raise(&mut next.at);
        }
        let renewed = self.keep(&record, 0);
        self.renewals.insert((id, until, sets), renewed);
        renewed
    }

    /// A command is sent, as a store does it; `None`: it is there already, or the state does not accept it.
    pub(crate) fn send(
        &mut self,
        id: RecordId,
        which: usize,
        order: &Order,
        again: bool,
    ) -> Option<RecordId> {
        if let Some(known) = self.sent.get(&(id, which, again)) {
            return *known;
        }
        let mut record = self.get(id).clone();
        let name = name_of_command(which, again);
        let known = record.inbox.iter().any(|command| command.id == name)
            || record.answers.iter().any(|answer| answer.id == name);
        let after = (!known && order.accepted_in().contains(&record.state)).then(|| {
            let queue = record.mail_queue().to_owned();
            record.inbox.push(Command {
                id: name,
                order: order.clone(),
                by: "ann".to_owned(),
                at: NOW,
            });
            record.mail += 1;
            if record.lease.is_none() {
                let is_due = record
                    .due
                    .iter()
                    .any(|due| due.method.is_empty() && due.at <= NOW);
                if !is_due {
                    record.due.push(Due {
                        queue: queue.clone(),
                        at: NOW,
                        method: String::new(),
                    });
                }
                record.next = Some(Next { queue, at: NOW });
            }
            self.keep(&record, 0)
        });
        self.sent.insert((id, which, again), after);
        after
    }

    /// What a worker has in memory, with the commands that it has read.
    pub(crate) fn with_mail(&mut self, held: RecordId, read: RecordId) -> RecordId {
        if let Some(known) = self.mixed.get(&(held, read)) {
            return *known;
        }
        let mut record = self.get(held).clone();
        record.inbox.clone_from(&self.get(read).inbox);
        record.mail = self.get(read).mail;
        let mixed = self.keep(&record, 0);
        self.mixed.insert((held, read), mixed);
        mixed
    }

    pub(crate) fn with_rev(&mut self, id: RecordId, rev: i64) -> RecordId {
        if let Some(known) = self.numbered.get(&(id, rev)) {
            return *known;
        }
        let mut record = self.get(id).clone();
        record.rev = rev;
        let numbered = self.keep(&record, 0);
        self.numbered.insert((id, rev), numbered);
        numbered
    }

    /// What a worker keeps in memory: it never looks at the end of the lease in the document, nor at what is due at that time.
    pub(crate) fn in_memory(&mut self, id: RecordId) -> RecordId {
        if let Some(known) = self.in_memory.get(&id) {
            return *known;
        }
        let mut record = self.get(id).clone();
        for due in &mut record.due {
            due.at = NOW;
        }
        if let Some(next) = &mut record.next {
            next.at = NOW;
        }
        if let Some(lease) = &mut record.lease {
            lease.until = NOW;
        }
        let kept = self.keep(&record, 1);
        self.in_memory.insert(id, kept);
        kept
    }

    /// What may begin now.
    pub(crate) fn due(&mut self, id: RecordId) -> Vec<Task> {
        if let Some(known) = self.due.get(&id) {
            return known.clone();
        }
        let due = due_tasks(self.get(id)).into_iter();
        let due: Vec<Task> = due
            .filter(|due| due.at.is_none_or(|at| at <= NOW))
            .map(|due| due.task)
            .collect();
        self.due.insert(id, due.clone());
        due
    }

    pub(crate) fn seen(&self, id: RecordId) -> Seen {
        Seen::of(self.get(id))
    }

    /// The lease's token and end.
    pub(crate) fn lease(&self, id: RecordId) -> Option<(Token, i8)> {
        let lease = self.get(id).lease.as_ref()?;
        let token = lease.token.parse().expect("a token of these tests");
        Some((token, canonical::ticks_until(lease.until)))
    }

    /// The attempt that runs of a task.
    pub(crate) fn running(&self, id: RecordId, task: Task) -> Option<&Running> {
        let action = self.get(id).actions.get(task.action)?;
        match task.phase {
            Phase::Undo => action.undo.as_ref()?.running.as_ref(),
            _ => action.running.as_ref(),
        }
    }

    pub(crate) fn runs_anything(&self, id: RecordId) -> bool {
        self.get(id).actions.iter().any(|action| {
            action.state == ActionState::Running
                || action
                    .undo
                    .as_ref()
                    .is_some_and(|undo| undo.running.is_some())
        })
    }

    /// What is wrong with a document that is stored where another was.
    pub(crate) fn check(&mut self, before: RecordId, after: RecordId) -> Result<(), String> {
        if let Some(known) = self.checked.get(&(before, after)) {
            return known.clone();
        }
        let checked = match check(self.get(after)).first() {
            Some(violation) => Err(violation.what.clone()),
            None => rules::check_step(self.get(before), self.get(after)),
        };
        self.checked.insert((before, after), checked.clone());
        checked
    }

    /// Whether what a worker has in memory is what is stored, but for what others may write.
    pub(crate) fn agree(&mut self, held: RecordId, stored: RecordId) -> bool {
        if let Some(known) = self.agreed.get(&(held, stored)) {
            return *known;
        }
        let own = |record: &MilestoneRecord| MilestoneRecord {
            lease: None,
            due: Vec::new(),
            next: None,
            inbox: Vec::new(),
            mail: 0,
            ..record.clone()
        };
        let agree = own(self.get(held)) == own(self.get(stored));
        self.agreed.insert((held, stored), agree);
        agree
    }
}

/// One that is sent again under another name is taken for another.
pub(crate) fn name_of_command(which: usize, again: bool) -> String {
    if again {
        format!("{which} again")
    } else {
        which.to_string()
    }
}

/// The event itself.
fn event_of(record: &MilestoneRecord, event: &Ev) -> Event {
    match event.clone() {
        Ev::TakenOver => Event::TakenOver {
            settle: Duration::ZERO,
        },
        Ev::Begin(tasks) => Event::Begin {
            tasks,
            worker: "w".to_owned(),
        },
        Ev::Succeeded(task, number) => Event::Succeeded {
            task,
            number,
            // The output tells which attempt it is from.
            output: number.into(),
        },
        Ev::Failed(task, number, cause) => {
            let repeatable =
                task.phase != Phase::Do || record.actions[task.action].mode.repeatable();
            let policy = match cause {
                Cause::NotBegun => RetryPolicy::new(),
                _ if repeatable => RetryPolicy::new(),
                _ => RetryPolicy::never(),
            };
            let tick = Duration::from_millis(TICK.unsigned_abs());
            Event::Failed {
                task,
                number,
                failed: Failed {
                    error: AttemptError::default(),
                    kind: match cause {
                        Cause::Error => None,
                        Cause::NotBegun => repeatable.then_some(AttemptKind::Cancelled),
                        Cause::CutOff => Some(AttemptKind::Cancelled),
                    },
                    fatal: false,
                    retry_after: None,
                    policy: policy.base(tick).cap(tick),
                    jitter: 1.0,
                    settle: Duration::ZERO,
                },
            }
        }
        Ev::Mail => Event::Mail,
        Ev::HandBack => Event::HandBack,
    }
}
