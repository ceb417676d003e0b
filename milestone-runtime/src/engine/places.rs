//! The places of a worker: who gets one, and what fills them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bson::DateTime;
use milestone_core::{
    machine::{Task, deadline_of, due_tasks},
    record::{MilestoneId, Phase},
};
use tokio::{sync::watch, task::AbortHandle};

use super::{Engine, body};
use crate::registry::Method;

pub(super) struct Places {
    all: usize,
    taken: usize,
    /// Those that a claim on its way may fill.
    promised: usize,
    by_method: HashMap<String, u32>,
    pub(super) bodies: BTreeMap<u64, Box<Body>>,
    /// Bodies that were given up but have not ended: their actions do not begin here until they have.
    disowned: BTreeMap<MilestoneId, BTreeSet<Task>>,
    pub(super) serial: u64,
    /// Whether a method with a limit of its own has got a free place.
    limit_freed: bool,
}

/// A body that runs, or did when it was last heard of.
pub(super) struct Body {
    pub(super) id: MilestoneId,
    pub(super) task: Task,
    pub(super) number: i64,
    /// As it was registered when it began.
    pub(super) method: Arc<Method>,
    pub(super) abort: AbortHandle,
    pub(super) cancel: watch::Sender<bool>,
    /// Set when it is over, or was given up: its calls of the toolkit write no more.
    pub(super) over: Arc<AtomicBool>,
    /// Whether its result still counts.
    pub(super) owned: bool,
    pub(super) start: Arc<body::Start>,
    /// Of a plain action, its name: a result that comes after it was given up is told to the milestone.
    pub(super) late: Option<String>,
    /// Tells that it takes longer than it may.
    pub(super) timer: Option<AbortHandle>,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        Self {
            all,
            taken: 0,
            promised: 0,
            by_method: HashMap::new(),
            bodies: BTreeMap::new(),
            disowned: BTreeMap::new(),
            serial: 0,
            limit_freed: false,
        }
    }

    pub(super) fn free(&self) -> usize {
        self.all.saturating_sub(self.taken + self.promised)
    }

    pub(super) const fn are_mostly_free(&self) -> bool {
        (self.taken + self.promised) * 2 <= self.all
    }

    /// Whether nothing runs, not even what was given up, nor what a claim on its way has begun.
    pub(super) const fn is_empty(&self) -> bool {
        self.taken == 0 && self.promised == 0
    }

    /// A claim is sent that may begin so many attempts, or has come back, with none.
    pub(super) const fn promise(&mut self, places: usize) {
        self.promised = places;
    }

    pub(super) fn reserve(&mut self, method: &str) {
        self.taken += 1;
        match self.by_method.get_mut(method) {
            Some(count) => *count += 1,
            None => {
                self.by_method.insert(method.to_owned(), 1);
            }
        }
    }

    pub(super) fn release(&mut self, method: &str) {
        self.taken = self.taken.saturating_sub(1);
        self.limit_freed = true;
        if let Some(count) = self.by_method.get_mut(method) {
            *count -= 1;
            if *count == 0 {
                self.by_method.remove(method);
            }
        }
    }

    pub(super) fn running(&self, method: &str) -> u32 {
        self.by_method.get(method).copied().unwrap_or(0)
    }

    pub(super) fn has_disowned(&self, id: &MilestoneId) -> bool {
        self.disowned.contains_key(id)
    }

    /// Whether every body that was given up has ended.
    pub(super) fn owns_all(&self) -> bool {
        self.disowned.is_empty()
    }

    pub(super) fn is_disowned(&self, id: &MilestoneId, task: Task) -> bool {
        self.disowned
            .get(id)
            .is_some_and(|tasks| tasks.contains(&task))
    }

    /// The result of a body no longer counts. It is asked to stop, and dropped at its next await. From now on its calls of the toolkit are
    /// refused: what is undone next looks for those that are on the wire, and no other one may follow.
    pub(super) fn disown(&mut self, serial: u64) {
        if let Some(body) = self.bodies.get_mut(&serial)
            && body.owned
        {
            body.owned = false;
            body.over.store(true, Ordering::SeqCst);
            body.cancel.send_replace(true);
            self.disowned
                .entry(body.id.clone())
                .or_default()
                .insert(body.task);
        }
    }

    pub(super) fn abort(&self, serial: u64) {
        if let Some(body) = self.bodies.get(&serial) {
            body.abort.abort();
        }
    }

    /// Sets the cancellation token of a body, and tells whether it was not set before.
    pub(super) fn ask_to_stop(&self, serial: u64) -> bool {
        self.bodies.get(&serial).is_some_and(|body| {
            body.cancel
                .send_if_modified(|cancelled| !std::mem::replace(cancelled, true))
        })
    }

    pub(super) fn ended(&mut self, serial: u64) -> Option<Box<Body>> {
        let body = self.bodies.remove(&serial)?;
        if let Some(timer) = &body.timer {
            timer.abort();
        }
        self.release(&body.method.name);
        if !body.owned
            && let Some(tasks) = self.disowned.get_mut(&body.id)
        {
            tasks.remove(&body.task);
            if tasks.is_empty() {
                self.disowned.remove(&body.id);
            }
        }
        Some(body)
    }

    pub(super) fn all_serials(&self) -> Vec<u64> {
        self.bodies.keys().copied().collect()
    }
}

impl Engine {
    /// What of a milestone can begin now. If something could but for a place, the milestone is put in the queue for one.
    pub(super) fn choose(&mut self, id: &MilestoneId, now: DateTime) -> Vec<Task> {
        if !self.begins() {
            return Vec::new();
        }
        let Some(held) = self.held.get_mut(id) else {
            return Vec::new();
        };
        if held.is_closing() || !held.replay.is_empty() {
            return Vec::new();
        }
        let mut chosen: Vec<Task> = Vec::new();
        let (mut wants_place, mut wants_turn) = (false, false);
        let mut wake: Option<DateTime> = None;
        let mut of_method: HashMap<&str, u32> = HashMap::new();
        let is_alone = self.suspects.is_alone(id);
        let waits_to_be_alone =
            held.record.is_suspect() && !is_alone && !self.suspects.is_let_go(id);
        let free = if waits_to_be_alone || (self.suspects.holds_back() && !is_alone) {
            0
        } else {
            self.places.free()
        };
        for due in due_tasks(&held.record) {
            if let Some(at) = due.at.filter(|at| *at > now) {
                wake = Some(wake.map_or(at, |earliest| earliest.min(at)));
                continue;
            }
            if self.places.is_disowned(id, due.task) {
                continue;
            }
            if due.task.phase == Phase::Undo && held.hold.has_calls() {
                // What is undone must not take effect afterwards.
                continue;
            }
            let Some(method) = self.shared.registry.get(due.method) else {
                continue;
            };
            if free <= chosen.len() {
                wants_place = true;
                break;
            }
            let chosen_of_it = of_method.entry(due.method).or_default();
            if method
                .options
                .concurrency
                .is_some_and(|most| self.places.running(due.method) + *chosen_of_it >= most)
            {
                wants_turn = true;
                continue;
            }
            *chosen_of_it += 1;
            chosen.push(due.task);
        }
        if (wants_place || wants_turn) && !held.queued {
            held.queued = true;
            let queue = if wants_place && waits_to_be_alone {
                &mut self.suspects.waiting
            } else if wants_place {
                &mut self.queue
            } else {
                &mut self.turns
            };
            queue.push_back(id.clone());
        }
        held.due_at = match deadline_of(&held.record) {
            Some(deadline) => Some(wake.map_or(deadline, |wake| wake.min(deadline))),
            None => wake,
        };
        chosen
    }

    /// Whether anything may begin here now.
    pub(super) fn begins(&self) -> bool {
        self.stopping.is_none() && !self.closed && (self.serving || !self.passes.is_empty())
    }

    /// Whether the method has as many attempts as it may have at once: nothing more of it is taken.
    pub(super) fn is_saturated(&self, method: &str) -> bool {
        let limit = self
            .shared
            .registry
            .get(method)
            .and_then(|method| method.options.concurrency);
        limit.is_some_and(|most| self.places.running(method) >= most)
    }

    /// Gives free places to those who wait for one, in their order: first to those who wait for the turn of their method.
    pub(super) fn fill_places(&mut self) {
        if self.suspects.holds_back() {
            let alone = self.suspects.alone().cloned();
            if let Some(id) = alone.filter(|id| self.held.get(id).is_some_and(|held| held.queued)) {
                self.queue.retain(|queued| *queued != id);
                self.turns.retain(|queued| *queued != id);
                self.plan_queued(&id);
            }
            return;
        }
        if std::mem::take(&mut self.places.limit_freed) {
            let turns = std::mem::take(&mut self.turns);
            for id in turns {
                self.plan_queued(&id);
            }
            let is_free = |method: &String| !self.is_saturated(method);
            if self.left_out.iter().any(is_free) {
                // Nobody here waits for its turn, but the last look has not looked for it.
                self.hint();
            }
        }
        for _ in 0..self.queue.len() {
            if self.places.free() == 0 {
                return;
            }
            let Some(id) = self.queue.pop_front() else {
                return;
            };
            self.plan_queued(&id);
        }
    }

    fn plan_queued(&mut self, id: &MilestoneId) {
        if let Some(held) = self.held.get_mut(id) {
            held.queued = false;
            self.plan(id);
        }
    }
}
