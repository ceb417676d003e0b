//! A worker, as `milestone-runtime/src/engine` does it: `claims.rs`, `held.rs`, `commits.rs`, `renewals.rs`, `attempts.rs`,
//! `inserts.rs`. The names are those of the engine.

use milestone_core::{machine::Task, record::Phase};

use crate::{
    pool::{Cause, Ev, Pool, RecordId, Token},
    rules::resolved,
    scenario::{Broken, Scenario},
    state::{
        Change, Commit, CommitCall, CommitPhase, Held, Insert, Outcome, Renewal, RenewalPhase,
        State, Worker,
    },
};

/// How many commands with patches are on the wire at once.
const COMMANDS: usize = 2;

/// A state that is being changed, and the first promise that is broken by that.
pub(crate) struct World<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) scenario: &'a Scenario,
    pub(crate) state: State,
    pub(crate) broken: Option<String>,
}

impl World<'_> {
    pub(crate) fn break_promise(&mut self, what: impl Into<String>) {
        self.broken.get_or_insert(what.into());
    }

    pub(crate) fn worker(&mut self, at: usize) -> &mut Worker {
        &mut self.state.workers[at]
    }

    fn held(&mut self, at: usize) -> Option<&mut Held> {
        self.state.workers[at].held.as_mut()
    }

    /// Puts what is stored in the place of what was.
    pub(crate) fn store(&mut self, after: RecordId) {
        let before = self.state.stored;
        if let Err(what) = self.pool.check(before, after) {
            self.break_promise(what);
        }
        self.state.stored = after;
    }

    /// Carries out an event in memory, and adds what it changes to what is planned.
    fn add(&mut self, at: usize, event: Ev) -> bool {
        let Some(held) = &self.state.workers[at].held else {
            return false;
        };
        let (record, pending) = (held.record, held.pending.patch);
        let Ok((record, patch)) = self.pool.advance(record, &event) else {
            return false;
        };
        let patch = match pending {
            Some(pending) => self.pool.merge(pending, patch),
            None => patch,
        };
        let is_empty = self.pool.patch(patch).is_empty();
        if let Some(held) = self.held(at) {
            held.record = record;
            held.pending.patch = (!is_empty).then_some(patch);
            held.pending.events.push(event);
        }
        true
    }

    fn step(&mut self, at: usize, event: Ev) {
        self.add(at, event);
        self.plan(at);
    }

    fn is_closing(&self, held: &Held) -> bool {
        self.pool.get(held.record).lease.is_none()
    }

    /// What can begin now.
    fn choose(&mut self, at: usize) -> Vec<Task> {
        let worker = &self.state.workers[at];
        let Some(held) = worker.held.as_ref().filter(|_| !worker.stopping) else {
            return Vec::new();
        };
        if self.is_closing(held) {
            return Vec::new();
        }
        let mut due = self.pool.due(held.record);
        due.retain(|task| !self.state.workers[at].disowned.contains(task));
        due
    }

    /// Begins what can begin, hands back what cannot go on here, and sends what there is to send.
    pub(crate) fn plan(&mut self, at: usize) {
        let begins = self.choose(at);
        if !begins.is_empty() && self.add(at, Ev::Begin(begins.clone())) {
            for task in begins {
                if let Some(held) = &mut self.state.workers[at].held
                    && let Some(running) = self.pool.running(held.record, task)
                {
                    held.pending.begins.push((task, running.number));
                }
            }
        }
        if self.scenario.is(Broken::StartsUnstored)
            && let Some(held) = self.held(at)
        {
            let begins = std::mem::take(&mut held.pending.begins);
            self.start_bodies(at, begins);
        }
        let worker = &self.state.workers[at];
        let hands_back = worker.held.as_ref().is_some_and(|held| {
            !self.is_closing(held)
                && held.is_idle()
                && (worker.stopping || worker.disowned.is_empty())
        });
        if hands_back {
            self.add(at, Ev::HandBack);
        }
    }

    /// Sends what there is to send.
    pub(crate) fn pump(&mut self, at: usize) {
        let worker = &mut self.state.workers[at];
        if worker.on_wire() >= COMMANDS {
            return;
        }
        let Some(held) = &mut worker.held else { return };
        let Some(patch) = held.pending.patch.filter(|_| held.in_flight.is_none()) else {
            return;
        };
        held.flying = std::mem::take(&mut held.pending);
        let commit = Commit {
            token: held.token,
            rev: held.rev,
            patch,
        };
        held.in_flight = Some(commit);
        worker.commits.push(CommitCall {
            commit,
            phase: CommitPhase::OnWire,
        });
    }

    /// A call of the store has come back.
    pub(crate) fn committed(&mut self, at: usize, commit: Commit, outcome: Outcome) {
        if !self.is_awaited(at, commit) {
            return;
        }
        match outcome {
            Outcome::Done => self.done(at),
            Outcome::Lost => self.lost(at),
            Outcome::Mail(record) => self.plan_anew(at, record),
            // It is sent again by whoever carries out the call.
            Outcome::Unknown => {}
        }
    }

    /// Whether an answer is that of what is in flight: it may be one from before the milestone was lost and taken again.
    pub(crate) fn is_awaited(&self, at: usize, commit: Commit) -> bool {
        let in_flight = self.state.workers[at]
            .held
            .as_ref()
            .and_then(|held| held.in_flight);
        if self.scenario.is(Broken::AnswersByIdAlone) {
            return in_flight.is_some();
        }
        in_flight.is_some_and(|sent| (sent.token, sent.rev) == (commit.token, commit.rev))
    }

    fn done(&mut self, at: usize) {
        let Some(held) = self.held(at) else { return };
        let Some(commit) = held.in_flight.take() else {
            return;
        };
        held.rev = commit.rev + 1;
        let (record, rev) = (held.record, held.rev);
        let begins = std::mem::take(&mut held.flying).begins;
        let record = self.pool.with_rev(record, rev);
        if let Some(held) = self.held(at) {
            held.record = record;
        }
        if self.pool.patch(commit.patch).releases() {
            self.worker(at).held = None;
            return;
        }
        self.start_bodies(at, begins);
    }

    /// The lease is another's: bodies are given up, and their results do not count.
    fn lost(&mut self, at: usize) {
        let worker = self.worker(at);
        if let Some(held) = worker.held.take() {
            worker.disowned.extend(held.bodies);
            worker.disowned.sort_unstable();
            worker.disowned.dedup();
        }
    }

    /// Begins again from the document as it is stored, with what has happened since: commands first, so that they are heeded.
    fn plan_anew(&mut self, at: usize, record: RecordId) {
        let rev = self.pool.get(record).rev;
        let Some(held) = self.held(at) else { return };
        let flying = std::mem::take(&mut held.flying).events;
        let pending = std::mem::take(&mut held.pending).events;
        held.in_flight = None;
        held.rev = rev;
        let in_memory = self.pool.in_memory(record);
        if let Some(held) = self.held(at) {
            held.record = in_memory;
        }
        if !self.pool.get(record).inbox.is_empty() {
            self.add(at, Ev::Mail);
        }
        for event in flying.into_iter().chain(pending) {
            if !matches!(event, Ev::Begin(_) | Ev::HandBack | Ev::Mail) {
                self.add(at, event);
            }
        }
        self.plan(at);
    }

    /// A broken worker takes a patch whose reply was lost for one that was not carried out.
    pub(crate) fn plan_over_unknown(&mut self, at: usize) {
        let Some(held) = self.held(at) else { return };
        let flying = std::mem::take(&mut held.flying);
        let pending = std::mem::take(&mut held.pending);
        held.in_flight = None;
        let patch = match (flying.patch, pending.patch) {
            (Some(first), Some(later)) => Some(self.pool.merge(first, later)),
            (first, later) => first.or(later),
        };
        if let Some(held) = self.held(at) {
            held.pending = Change {
                patch,
                events: [flying.events, pending.events].concat(),
                begins: [flying.begins, pending.begins].concat(),
            };
        }
    }

    /// New commands are put into what is held, and carried out.
    pub(crate) fn fetched(&mut self, at: usize, (token, read): (Token, RecordId)) {
        let held = self.state.workers[at].held.as_ref();
        // What was read for an earlier lease says nothing of this one.
        let Some(held) = held.filter(|held| held.token == token) else {
            return;
        };
        let mail = self.pool.get(read).mail;
        if self.is_closing(held) || mail <= self.pool.get(held.record).mail {
            return;
        }
        if !held.pending.begins.is_empty() && !self.scenario.is(Broken::MailBehindBegin) {
            // It would begin behind the command. As it is it cannot be stored, and is planned anew.
            return;
        }
        let record = self.pool.with_mail(held.record, read);
        if let Some(held) = self.held(at) {
            held.record = record;
        }
        self.step(at, Ev::Mail);
    }

    /// A milestone was taken.
    pub(crate) fn claimed(&mut self, at: usize, record: RecordId) {
        // This worker's own lease had ended: what it still has of it is void.
        self.lost(at);
        let Some((token, until)) = self.pool.lease(record) else {
            return;
        };
        self.hold(at, record, token, until);
        let begun = self.begun(record);
        if begun.is_empty() && self.pool.runs_anything(record) {
            self.add(at, Ev::TakenOver);
        }
        if !self.pool.get(record).inbox.is_empty() {
            self.add(at, Ev::Mail);
        }
        self.begun_by_claim(at, begun);
        self.plan(at);
    }

    /// The attempts that were begun by the write that gave the milestone to its worker.
    fn begun(&self, record: RecordId) -> Vec<(Task, i64)> {
        let epoch = self.pool.get(record).epoch;
        let actions = 0..self.pool.get(record).actions.len();
        let begins = actions.map(Task::to_do).filter_map(|task| {
            let running = self.pool.running(record, task)?;
            (running.epoch == epoch).then_some((task, running.number))
        });
        begins.collect()
    }

    fn begun_by_claim(&mut self, at: usize, begun: Vec<(Task, i64)>) {
        let worker = &self.state.workers[at];
        let is_late = |task: &Task| worker.stopping || worker.disowned.contains(task);
        let (late, now): (Vec<_>, Vec<_>) = begun.into_iter().partition(|(task, _)| is_late(task));
        self.start_bodies(at, now);
        for (task, number) in late {
            self.step(at, Ev::Failed(task, number, Cause::NotBegun));
        }
    }

    fn hold(&mut self, at: usize, record: RecordId, token: Token, until: i8) {
        let known = self.state.workers[at].held.as_ref().map(|held| held.token);
        let stored = self.pool.lease(self.state.stored).map(|(token, _)| token);
        if known.is_some() && known == stored {
            self.break_promise(format!(
                "worker {} forgets a milestone that it holds",
                at + 1
            ));
        }
        let rev = self.pool.get(record).rev;
        let record = self.pool.in_memory(record);
        self.worker(at).held = Some(Held {
            record,
            token,
            rev,
            until,
            in_flight: None,
            flying: Change::default(),
            pending: Change::default(),
            bodies: Vec::new(),
            waiting: Vec::new(),
        });
    }

    /// A new milestone is stored: its bodies start.
    pub(crate) fn born(&mut self, at: usize, insert: Insert) {
        if self.state.workers[at].held.is_some() && !self.scenario.is(Broken::BornOverClaimed) {
            return;
        }
        let Some((token, until)) = self.pool.lease(insert.record) else {
            return;
        };
        self.hold(at, insert.record, token, until);
        let begins = self.begun(insert.record);
        self.start_bodies(at, begins);
        self.plan(at);
    }

    pub(crate) fn renewed(&mut self, at: usize, renewal: Renewal) {
        let Some(held) = &self.state.workers[at].held else {
            return;
        };
        if held.token != renewal.token {
            return;
        }
        if renewal.phase == (RenewalPhase::Told { lost: true }) {
            if !self.is_closing(held) {
                self.lost(at);
            }
            return;
        }
        let Some(held) = self.held(at) else { return };
        held.until = held.until.max(renewal.until);
        let waiting = std::mem::take(&mut held.waiting);
        if !waiting.is_empty() {
            self.start_bodies(at, waiting);
        }
    }

    /// Starts the bodies of attempts that are stored as begun; under a lease that may be over, it is renewed first.
    fn start_bodies(&mut self, at: usize, begins: Vec<(Task, i64)>) {
        if self.state.workers[at].cut {
            for (task, number) in begins {
                self.step(at, Ev::Failed(task, number, Cause::NotBegun));
            }
            return;
        }
        let unchecked = self.scenario.is(Broken::StartsWithoutLease);
        let Some(held) = self.held(at) else { return };
        if held.until <= 0 && !unchecked {
            held.waiting.extend(begins);
            return;
        }
        for (task, number) in begins {
            self.start_body(at, task, number);
        }
    }

    fn start_body(&mut self, at: usize, task: Task, number: i64) {
        let Some(held) = &mut self.state.workers[at].held else {
            return;
        };
        let runs = self.pool.running(held.record, task);
        if runs.is_none_or(|running| running.number != number) {
            return;
        }
        held.bodies.push(task);
        held.bodies.sort_unstable();
        let token = held.token;
        self.check_start(at, token, task, number);
    }

    /// What must hold whenever a body starts.
    fn check_start(&mut self, at: usize, token: Token, task: Task, number: i64) {
        let stored = self.state.stored;
        let running = self.pool.running(stored, task);
        if running.is_none_or(|running| running.number != number) {
            self.break_promise(format!(
                "worker {} starts attempt {number} of {}, which does not run in the database",
                at + 1,
                name_of(task)
            ));
        }
        if self.pool.lease(stored).is_none_or(|lease| lease.0 != token) {
            self.break_promise(format!(
                "worker {} starts {} and does not hold the milestone",
                at + 1,
                name_of(task)
            ));
        }
        if task == Task::to_do(task.action) && self.scenario.is_plain(task.action) {
            self.state.starts[task.action] += 1;
            // Somebody may have said that it did not take effect.
            let said = resolved(self.pool.get(stored));
            if usize::from(self.state.starts[task.action]) > 1 + said {
                self.break_promise(format!(
                    "P3: {} is plain, and its body starts again without anybody's word",
                    name_of(task)
                ));
            }
        }
    }

    /// The body of a task ends.
    pub(crate) fn ended(&mut self, at: usize, task: Task, succeeds: bool) {
        let Some(held) = self.held(at) else { return };
        held.bodies.retain(|other| *other != task);
        let record = held.record;
        let number = self
            .pool
            .running(record, task)
            .map_or(0, |running| running.number);
        self.step(
            at,
            if succeeds {
                Ev::Succeeded(task, number)
            } else {
                Ev::Failed(task, number, Cause::Error)
            },
        );
    }

    /// The grace period is over: what still runs is cut off and handed back.
    pub(crate) fn cut_off_all(&mut self, at: usize) {
        self.worker(at).cut = true;
        let Some(held) = self.held(at) else { return };
        let bodies = std::mem::take(&mut held.bodies);
        let waiting = std::mem::take(&mut held.waiting);
        self.worker(at).disowned.extend(bodies.iter().copied());
        self.worker(at).disowned.sort_unstable();
        self.worker(at).disowned.dedup();
        for task in bodies {
            let Some(held) = &self.state.workers[at].held else {
                return;
            };
            if let Some(running) = self.pool.running(held.record, task) {
                let number = running.number;
                self.step(at, Ev::Failed(task, number, Cause::CutOff));
            }
        }
        for (task, number) in waiting {
            self.step(at, Ev::Failed(task, number, Cause::NotBegun));
        }
    }
}

pub(crate) fn name_of(task: Task) -> String {
    let action = ["`a`", "`b`"].get(task.action).copied().unwrap_or("?");
    if task.phase == Phase::Undo {
        format!("the undo of {action}")
    } else {
        action.to_owned()
    }
}
