//! Looking for work: never more than there are free places, quick after work, slow when idle.

mod room;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bson::DateTime;
use milestone_core::{
    machine::{Begins, Event, Task},
    options::Mode,
    record::{DEFAULT_QUEUE, MilestoneId, MilestoneRecord, Phase, Running},
};
use room::{Asking, Room};
use tokio::time::Instant;

use super::{
    Engine,
    held::{Held, Timer, begun},
    message::Message,
    method_of,
};
use crate::{
    config::LONGEST,
    ids::random_token,
    store::{ClaimRequest, Claimed, StoreError},
};

/// The shortest time between two looks that hints cause, where they lead to nothing: others may be faster, and on SQLite a worker's own
/// writes are hints too.
pub(super) const HINT_EVERY: Duration = Duration::from_millis(40);

/// How many wake-up times are remembered; the poll finds what is forgotten.
const WAKES: usize = 1024;

impl Engine {
    /// Whether this worker looks for work at all now.
    pub(super) fn wants_claim(&self) -> bool {
        if self.stopping.is_some()
            || self.closed
            || self.shared.config.client
            || self.shares.looking
        {
            return false;
        }
        self.serving || self.passes.front().is_some_and(|pass| !pass.exhausted)
    }

    pub(super) fn claim_at(&self) -> Instant {
        if self.passes.front().is_some_and(|pass| !pass.exhausted) && !self.outage {
            // A time that is over: one read now would still lie ahead of whoever compares it with a time read before.
            return if self.shares.has_left() {
                self.poll_at
            } else {
                self.last_claim
            };
        }
        let mut at = self.poll_at;
        if self.idle_wait.is_zero() && self.places.are_mostly_free() && !self.outage {
            // What was taken is done already, and there was more.
            at = self.last_claim;
        }
        if let Some(wake) = self.wakes.first() {
            at = at.min(*wake);
        }
        if self.hinted && !self.outage {
            at = at.min(self.last_claim + self.hint_wait);
        }
        at
    }

    /// How many milestones may be taken: whoever is held and waits for a place comes first.
    pub(super) fn free_for_claims(&self) -> usize {
        if self.suspects.holds_back() {
            return 0;
        }
        self.places.free().saturating_sub(self.queue.len())
    }

    pub(super) fn send_claim(&mut self) {
        let free = self.free_for_claims();
        if self.claim_in_flight
            || free == 0
            || !self.wants_claim()
            || Instant::now() < self.claim_at()
        {
            return;
        }
        let now = self.now();
        let pass = self.passes.front().filter(|pass| !pass.exhausted);
        let config = &self.shared.config;
        // Of a database that is away nobody knows whether it is back, until a call succeeds: it may be this one. And where renewals come
        // late, so may those of others.
        let expired = !self.outage
            && !self.renews_late()
            && self
                .takes_expired_from
                .is_none_or(|from| from <= Instant::now());
        let mut queues: Vec<String> = self.shared.registry.queues().into_iter().collect();
        if !queues.iter().any(|queue| queue == DEFAULT_QUEUE) {
            queues.push(DEFAULT_QUEUE.to_owned());
        }
        let names = self.shared.registry.names();
        let (left_out, methods): (Vec<String>, Vec<String>) = names
            .into_iter()
            .partition(|method| self.is_saturated(method));
        let is_due = self
            .wakes
            .first()
            .is_some_and(|wake| *wake <= Instant::now());
        let expected = std::mem::take(&mut self.expected);
        // Where nothing was due before, there is no more than what was told since.
        let is_told = self.hinted && !is_due && !self.idle_wait.is_zero() && pass.is_none();
        let asking = Asking {
            free,
            started: std::mem::take(&mut self.started),
            starts: self.starts,
            // An old body of the same action may still run here, which its new attempt has to wait for.
            may_begin: self.begins() && self.places.owns_all(),
            is_likely: self.hinted || is_due || self.idle_wait.is_zero(),
            told: is_told.then_some(expected),
            most: self.shares.most(),
        };
        let Room { limit, begins } = asking.room();
        let begins = begins.then(|| Begins {
            methods: self.shared.registry.begun_by_claims(),
            now,
            limits: config.limits,
        });
        let request = ClaimRequest {
            owner: self.shared.worker.clone(),
            token: random_token(),
            limit,
            now: pass.map_or(now, |pass| pass.cutoff),
            until: self.shared.clock.in_future(config.stored_lease()),
            queues,
            methods,
            expired_before: expired.then(|| before(now, config.margin())),
            // What is born here and not yet known to be stored is not to be taken over from oneself.
            except: self.except.union(&self.births).cloned().collect(),
            share: self.shares.share(Instant::now()),
            begins,
        };
        if request.begins.is_some() {
            self.places.promise(limit);
        }
        let for_pass = pass.is_some();
        self.claim_in_flight = true;
        self.left_out = left_out;
        self.shared.counts.look();
        let by_hint = std::mem::take(&mut self.hinted);
        self.last_claim = Instant::now();
        let now = Instant::now();
        while self.wakes.first().is_some_and(|wake| *wake <= now) {
            self.wakes.pop_first();
        }
        let store = Arc::clone(&self.shared.store);
        self.call(async move { store.claim(request).await }, move |result| {
            Message::Claimed {
                for_pass,
                by_hint,
                result,
            }
        });
    }

    pub(super) fn claimed(
        &mut self,
        for_pass: bool,
        by_hint: bool,
        result: Result<Claimed, StoreError>,
    ) {
        self.claim_in_flight = false;
        self.places.promise(0);
        let claimed = match result {
            Ok(claimed) => claimed,
            Err(error) => {
                let wait = self.failed_call("a claim", &error);
                self.poll_at = Instant::now() + wait;
                return;
            }
        };
        self.successful_call();
        let took = self.last_claim.elapsed();
        self.shares.took(took);
        if took > self.shared.config.lease / 2 {
            // It has outlasted an outage, in which the leases of others have run out too.
            self.takes_expired_from = Some(Instant::now() + self.shared.config.lease);
        }
        self.learn_from(&claimed);
        for (id, unreadable) in claimed.unreadable {
            if self.unreadable.insert(id.clone()) {
                tracing::error!(milestone = %id, error = %unreadable, "a milestone is left alone");
            }
            self.except.insert(id);
        }
        let counts = &self.shared.counts;
        counts.claimed(claimed.records.len(), claimed.missed);
        let found = !claimed.records.is_empty();
        if !found
            && claimed.missed == 0
            && claimed.left.is_empty()
            && for_pass
            && let Some(pass) = self.passes.front_mut()
        {
            pass.exhausted = true;
        }
        let poll = self.shared.config.poll;
        let is_for_others = claimed.missed > 0 || !claimed.left.is_empty();
        self.idle_wait = if found {
            Duration::ZERO
        } else if is_for_others {
            // They are to have the time to take it.
            let patience = self.shares.patience();
            (self.idle_wait * 2)
                .clamp(patience, patience.max(poll / 8))
                .min(poll)
        } else {
            (self.idle_wait * 2).clamp(poll / 8, poll)
        };
        self.hint_wait = if found || is_for_others || !by_hint {
            Duration::ZERO
        } else {
            (self.hint_wait * 2).clamp(HINT_EVERY / 8, HINT_EVERY)
        };
        // Where there is more, places that become free in as long as a look takes are filled by one.
        let wait = if found {
            took.min(HINT_EVERY)
        } else {
            self.idle_wait
        };
        self.poll_at = Instant::now() + wait.mul_f64(0.9 + fastrand::f64() / 10.0);
        self.end_sessions_of_the_dead(&claimed.records);
        for record in claimed.records {
            let id = record.id.clone();
            let Some(held) = Held::new(record, &self.tell).map(Box::new) else {
                continue;
            };
            if let Some(old) = self.held.remove(&id) {
                // This worker's own lease had ended: what it still has of it is void.
                self.held.insert(id.clone(), old);
                self.lost(&id);
            }
            if for_pass && let Some(pass) = self.passes.front_mut() {
                pass.take(id.clone());
            }
            self.take(held);
        }
    }

    /// A transaction that a dead worker has left open keeps its locks, which others wait for, until the server gives it up or it is ended.
    /// Here that is only for the sake of others: an attempt that follows does it too, before it looks at what was committed.
    fn end_sessions_of_the_dead(&self, taken: &[MilestoneRecord]) {
        let actions = taken.iter().flat_map(|record| &record.actions);
        let transactional = actions.filter(|action| action.mode == Mode::Transactional);
        let leases = taken.iter().filter_map(|record| record.lease.as_ref());
        let Some(last) = leases.map(|lease| lease.since).max() else {
            return;
        };
        let dead: BTreeSet<String> = transactional
            .filter_map(|action| action.running.as_ref())
            .map(|running| running.worker.clone())
            .filter(|worker| *worker != self.shared.worker)
            .collect();
        if dead.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.shared.io.spawn(async move {
            for worker in dead {
                let now = shared.clock.now();
                if let Some(mongodb) = shared.store.mongodb()
                    && let Err(error) = mongodb.end_sessions(&worker, last, now).await
                {
                    tracing::debug!(%error, dead = worker, "the sessions of a worker that is gone cannot be ended now");
                }
            }
        });
    }

    /// Goes to work on a milestone that was just taken.
    fn take(&mut self, mut held: Box<Held>) {
        let id = held.id().clone();
        let now = self.now();
        let limits = self.shared.config.limits;
        let mut events = Vec::new();
        let epoch = held.record.epoch;
        let running = held.record.actions.iter().flat_map(|action| {
            let tries = Phase::ALL
                .into_iter()
                .filter_map(|phase| action.tries(phase));
            let is_of_another = move |running: &Running| running.epoch != epoch;
            let runs = tries.filter(move |tries| tries.running.is_some_and(is_of_another));
            runs.filter_map(|tries| tries.method)
        });
        let options = |method: &str| {
            self.shared
                .registry
                .get(method)
                .map(|method| method.options)
        };
        // Of attempts whose method this worker does not have, nobody here knows the timeout.
        let timeouts: Vec<_> = running
            .map(|method| options(method).and_then(|options| options.timeout))
            .collect();
        if let Some(longest) = timeouts.into_iter().max() {
            let settle = self.shared.config.settle(longest);
            events.push(Event::TakenOver { settle });
        }
        if !held.record.inbox.is_empty() {
            events.push(Event::Mail);
        }
        for event in events {
            if let Err(error) = held.plan(event, now, &limits) {
                tracing::warn!(milestone = %id, %error, "a milestone that was taken over makes no sense");
            }
        }
        let begun = begun(&held);
        self.held.insert(id.clone(), held);
        self.begun_by_claim(&id, begun);
        self.plan(&id);
    }

    /// The bodies of what the claim has begun start, as if a commit had begun it.
    fn begun_by_claim(&mut self, id: &MilestoneId, begun: Vec<(Task, i64)>) {
        let Some(held) = self.held.get(id) else {
            return;
        };
        for (task, _) in &begun {
            self.places.reserve(method_of(held, *task));
        }
        if self.begins() {
            // One that was given up while the claim was on its way still runs.
            let is_late = |(task, _): &(Task, i64)| self.places.is_disowned(id, *task);
            let (late, now): (Vec<_>, Vec<_>) = begun.into_iter().partition(is_late);
            self.start_bodies(id, now);
            for (task, number) in late {
                let message =
                    "an earlier attempt, which has lost its lease, still runs in this worker";
                self.not_begun(id, task, number, message);
            }
            return;
        }
        for (task, number) in begun {
            let message = "the worker shut down before the body could begin";
            self.not_begun(id, task, number, message);
        }
    }

    /// One milestone is due.
    pub(super) fn hint_one(&mut self) {
        self.hinted = true;
        self.expected = self.expected.saturating_add(1);
    }

    /// Something may be due, nobody knows how much.
    pub(super) fn hint(&mut self) {
        self.left_out.clear();
        self.hinted = true;
        self.expected = usize::MAX;
    }

    /// Where something else of a milestone runs, it is not handed back, and no claim would find what becomes due of it.
    pub(super) fn wake_held(&mut self, id: &MilestoneId, now: DateTime) {
        let Some(held) = self.held.get_mut(id).filter(|held| !held.is_closing()) else {
            return;
        };
        if let Some(at) = held.due_at.take().filter(|at| {
            let set = held.wake.as_ref().map(|(set, _)| *set);
            set.is_none_or(|set| set <= now || *at < set)
        }) {
            let wait = self.shared.clock.wait_until(at).min(LONGEST);
            let timer = self.later(wait, Message::Wake { id: id.clone() });
            if let Some(held) = self.held.get_mut(id) {
                held.wake = Some((at, Timer(timer)));
            }
        }
    }

    /// Something that was handed back is due then.
    pub(super) fn wake_at(&mut self, at: DateTime) {
        if self.wakes.len() < WAKES {
            self.wakes
                .insert(Instant::now() + self.shared.clock.wait_until(at));
        }
    }
}

fn before(now: DateTime, by: Duration) -> DateTime {
    DateTime::from_millis(now.timestamp_millis() - i64::try_from(by.as_millis()).unwrap_or(0))
}
