//! Whoever waits for a milestone to end. What this worker ends itself is told at once, what others end by a hint; for the rest the store
//! is asked: at once, soon again, and then less and less often.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};
use tokio::time::Instant;

use super::{
    Engine, claims::HINT_EVERY, ended::Ended, held::Held, message::Message, message::Watcher,
};
use crate::store::StoreError;

/// How many milestones one look asks for at the most.
const BATCH: usize = 256;

/// How many are asked for in one poll period at the most, where no hint comes: beyond that, each waits longer.
const IN_A_POLL: usize = 4 * BATCH;

/// The first wait between two looks.
const FIRST_WAIT: Duration = Duration::from_millis(5);

/// A wait that long is one for what others end: from then on they are asked for hints.
const LONG_WAIT: Duration = Duration::from_millis(100);

/// For how long hints of what has ended are asked for after such a wait.
const HINTS_FOR: Duration = Duration::from_secs(30);

/// Those who wait, and when each milestone that is not held here is looked at.
pub(super) struct Watchers {
    waiting: BTreeMap<MilestoneId, Waiting>,
    agenda: BTreeSet<(Instant, MilestoneId)>,
    /// Whether a look is on its way.
    looking: bool,
    last_look: Instant,
    /// After a look that failed.
    not_before: Instant,
    /// Something has changed since the last look, and nobody knows what.
    stirred: bool,
    /// When somebody waited last for what others end.
    elsewhere: Option<Instant>,
}

/// Those who wait for one milestone.
#[derive(Default)]
struct Waiting {
    watchers: Vec<Watcher>,
    /// When it is looked at; never while it is held here.
    at: Option<Instant>,
    wait: Duration,
}

impl Watchers {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            waiting: BTreeMap::new(),
            agenda: BTreeSet::new(),
            looking: false,
            last_look: now,
            not_before: now,
            stirred: false,
            elsewhere: None,
        }
    }

    fn add(&mut self, id: &MilestoneId, watcher: Watcher) {
        let waiting = self.waiting.entry(id.clone()).or_default();
        waiting.watchers.retain(|watcher| !watcher.is_closed());
        waiting.watchers.push(watcher);
    }

    fn remove(&mut self, id: &MilestoneId) -> Vec<Watcher> {
        self.set_aside(id);
        let waiting = self.waiting.remove(id);
        waiting.map_or_else(Vec::new, |waiting| waiting.watchers)
    }

    /// It is not looked at until it is put on the agenda again.
    fn set_aside(&mut self, id: &MilestoneId) {
        if let Some(at) = self.waiting.get_mut(id).and_then(|w| w.at.take()) {
            self.agenda.remove(&(at, id.clone()));
        }
    }

    /// It is looked at then, and if that tells nothing, soon again.
    fn look_at(&mut self, id: &MilestoneId, at: Instant) {
        self.set_aside(id);
        if let Some(waiting) = self.waiting.get_mut(id) {
            waiting.wait = FIRST_WAIT;
            waiting.at = Some(at);
            self.agenda.insert((at, id.clone()));
        }
    }

    /// Whether hints of what has ended are of use.
    pub(super) fn want_hints(&self, now: Instant) -> bool {
        let elsewhere = self.elsewhere;
        elsewhere.is_some_and(|at| now - at < HINTS_FOR)
    }

    /// Somebody waits for what others end.
    fn wait_elsewhere(&mut self, now: Instant) {
        self.elsewhere = Some(now);
    }

    /// Something has changed, nobody knows what.
    fn stir(&mut self) {
        self.stirred = true;
    }

    /// When to look next.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let (first, _) = self.agenda.first().filter(|_| !self.looking)?;
        let soon = self.stirred.then(|| self.last_look + HINT_EVERY);
        let at = soon.map_or(*first, |soon| soon.min(*first));
        Some(at.max(self.not_before))
    }

    /// What is to be looked at now; each has its next time then. What is held here, and what nobody waits for any more, is left out.
    fn take_due(
        &mut self,
        now: Instant,
        poll: Duration,
        is_held: impl Fn(&MilestoneId) -> bool,
    ) -> Vec<MilestoneId> {
        let stirred = std::mem::take(&mut self.stirred);
        self.last_look = now;
        let crowd = self.agenda.len().div_ceil(IN_A_POLL).max(1);
        let longest = poll.max(FIRST_WAIT) * u32::try_from(crowd).unwrap_or(u32::MAX);
        let mut due = Vec::new();
        // They come back behind the loop, or those that are soon looked at again would be met again before others.
        let mut again = Vec::new();
        while due.len() < BATCH {
            let first = self.agenda.pop_first();
            let Some((at, id)) = first else {
                break;
            };
            if at > now && !stirred {
                self.agenda.insert((at, id));
                break;
            }
            let Some(waiting) = self.waiting.get_mut(&id) else {
                continue;
            };
            waiting.at = None;
            waiting.watchers.retain(|watcher| !watcher.is_closed());
            if waiting.watchers.is_empty() {
                self.waiting.remove(&id);
            } else if !is_held(&id) {
                let next = now + waiting.wait.mul_f64(0.9 + fastrand::f64() / 10.0);
                waiting.wait = (waiting.wait * 2).min(longest);
                if waiting.wait > LONG_WAIT {
                    self.elsewhere = Some(now);
                }
                waiting.at = Some(next);
                again.push((next, id.clone()));
                due.push(id);
            }
        }
        self.agenda.extend(again);
        due
    }
}

impl Engine {
    pub(super) fn watch(&mut self, id: &MilestoneId, reply: Watcher) {
        self.watchers.add(id, reply);
        if self.shared.config.client {
            self.watchers.wait_elsewhere(Instant::now());
        }
        if !self.held.contains_key(id) {
            self.watchers.look_at(id, Instant::now());
        }
    }

    /// That milestone has ended, not by this worker.
    pub(super) fn ended_elsewhere(&mut self, id: &MilestoneId) {
        if !self.held.contains_key(id) {
            self.watchers.look_at(id, Instant::now());
        }
    }

    /// Some milestone may have ended.
    pub(super) fn stir_watchers(&mut self) {
        self.watchers.stir();
    }

    pub(super) fn send_watch(&mut self) {
        let now = Instant::now();
        if self.watchers.next_look().is_none_or(|at| now < at) {
            return;
        }
        let poll = self.shared.config.poll;
        let held = &self.held;
        let ids = self
            .watchers
            .take_due(now, poll, |id| held.contains_key(id));
        if ids.is_empty() {
            return;
        }
        self.watchers.looking = true;
        let store = Arc::clone(&self.shared.store);
        let asked = ids.clone();
        self.call(async move { store.get(asked).await }, |result| {
            Message::Watched { ids, result }
        });
    }

    pub(super) fn watched(
        &mut self,
        ids: &[MilestoneId],
        result: Result<Vec<Result<MilestoneRecord, Unreadable>>, StoreError>,
    ) {
        self.watchers.looking = false;
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                let wait = self.failed_call("a read", &error);
                self.watchers.not_before = Instant::now() + wait;
                return;
            }
        };
        self.successful_call();
        let mut by_id: HashMap<MilestoneId, MilestoneRecord> = HashMap::new();
        let mut unreadable: HashMap<String, Unreadable> = HashMap::new();
        for item in found {
            match item {
                Ok(record) => {
                    by_id.insert(record.id.clone(), record);
                }
                Err(error) => {
                    unreadable.insert(error.id.clone(), error);
                }
            }
        }
        for id in ids {
            match by_id.remove(id) {
                Some(record) if record.state.is_terminal() => {
                    self.tell_watchers(id, &Ok(Some(Arc::new(record.into()))));
                }
                Some(_) => {}
                None => match unreadable.remove(&id.to_string()) {
                    Some(error) => self.tell_watchers(id, &Err(error)),
                    None if self.held.contains_key(id) => {}
                    None => self.tell_watchers(id, &Ok(None)),
                },
            }
        }
    }

    fn tell_watchers(&mut self, id: &MilestoneId, result: &Result<Option<Arc<Ended>>, Unreadable>) {
        for watcher in self.watchers.remove(id) {
            // Whoever does not wait any more need not know.
            let _ = watcher.send(result.clone());
        }
    }

    /// A milestone is no longer held here: those who wait for its end, and a pass that took it, are told.
    pub(super) fn leave(&mut self, held: Box<Held>) {
        let id = held.id().clone();
        let passing = self
            .passes
            .front()
            .is_some_and(|pass| pass.taken.contains_key(&id));
        let ended = held.record.state.is_terminal() && held.is_closing();
        let watched = self.watchers.waiting.contains_key(&id);
        if watched && !ended {
            self.watchers.look_at(&id, Instant::now() + FIRST_WAIT);
        }
        if !(passing || watched && ended) {
            return;
        }
        if passing && let Some(pass) = self.passes.front_mut() {
            pass.done(&held.record, held.parameters.to_tree());
        }
        if watched && ended {
            self.tell_watchers(&id, &Ok(Some(Arc::new(Ended::from(*held)))));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const POLL: Duration = Duration::from_secs(1);

    /// Watchers of so many milestones, and those who wait.
    fn watchers(count: usize, now: Instant) -> (Watchers, Vec<oneshot::Receiver<Outcome>>) {
        let mut watchers = Watchers::new(now);
        let mut waiting = Vec::new();
        for number in 0..count {
            let (watcher, receiver) = oneshot::channel();
            let id = id(number);
            watchers.add(&id, watcher);
            watchers.look_at(&id, now);
            waiting.push(receiver);
        }
        (watchers, waiting)
    }

    type Outcome = Result<Option<Arc<Ended>>, Unreadable>;

    fn id(number: usize) -> MilestoneId {
        format!("m{number:05}").into()
    }

    #[test]
    fn looks_are_at_once_then_soon_then_each_poll() {
        let now = Instant::now();
        let (mut watchers, _waiting) = watchers(1, now);
        let mut waits = Vec::new();
        let mut at = now;
        for _ in 0..12 {
            let next = watchers.next_look().unwrap();
            waits.push(next - at);
            at = next;
            assert_eq!(watchers.take_due(at, POLL, |_| false), [id(0)]);
        }
        assert_eq!(waits[0], Duration::ZERO);
        assert!(waits[1] <= FIRST_WAIT, "{waits:?}");
        assert!(waits[11] >= POLL.mul_f64(0.9) && waits[11] <= POLL);
    }

    #[test]
    fn nothing_is_looked_at_twice_in_one_look() {
        let now = Instant::now();
        let (mut watchers, _waiting) = watchers(3, now);
        // The others are looked at later than the first one again.
        watchers.look_at(&id(1), now + POLL);
        watchers.look_at(&id(2), now + 2 * POLL);
        watchers.stir();
        assert_eq!(
            watchers.take_due(now, POLL, |_| false),
            [id(0), id(1), id(2)]
        );
        assert_eq!(watchers.agenda.len(), 3);
    }

    #[test]
    fn what_is_held_here_is_not_looked_at() {
        let now = Instant::now();
        let (mut watchers, _waiting) = watchers(3, now);
        let due = watchers.take_due(now, POLL, |held| *held == id(1));
        assert_eq!(due, [id(0), id(2)]);
        watchers.look_at(&id(1), now);
        assert_eq!(watchers.take_due(now, POLL, |_| false), [id(1)]);
    }

    #[test]
    fn whoever_waits_no_more_is_forgotten() {
        let now = Instant::now();
        let (mut watchers, waiting) = watchers(2, now);
        drop(waiting);
        assert!(watchers.take_due(now, POLL, |_| false).is_empty());
        assert!(watchers.waiting.is_empty() && watchers.next_look().is_none());
    }

    #[test]
    fn of_many_each_has_its_turn_at_a_bounded_rate() {
        let now = Instant::now();
        let count = 2 * IN_A_POLL;
        let (mut watchers, _waiting) = watchers(count, now);
        let mut looks = BTreeMap::<MilestoneId, usize>::new();
        let (mut at, mut asked) = (now, 0);
        // The first looks, close behind one another, are not of the rate.
        while at < now + 10 * POLL {
            at = watchers.next_look().unwrap().max(at);
            let due = watchers.take_due(at, POLL, |_| false);
            assert!(due.len() <= BATCH);
            if at >= now + 4 * POLL {
                asked += due.len();
                for id in due {
                    *looks.entry(id).or_default() += 1;
                }
            }
        }
        assert_eq!(looks.len(), count, "none is hidden by others");
        assert!(asked <= 8 * IN_A_POLL, "{asked}");
    }

    #[test]
    fn hints_of_unknown_changes_come_to_few_looks() {
        let (mut watchers, _waiting) = watchers(1, Instant::now());
        let mut now = Instant::now();
        for _ in 0..8 {
            now = watchers.next_look().unwrap();
            watchers.take_due(now, POLL, |_| false);
        }
        watchers.stir();
        assert_eq!(watchers.next_look(), Some(now + HINT_EVERY));
        assert_eq!(
            watchers.take_due(now + HINT_EVERY, POLL, |_| false),
            [id(0)]
        );
        let next = watchers.next_look().unwrap();
        assert!(next > now + HINT_EVERY + POLL / 4, "no hint has come since");
    }
}
