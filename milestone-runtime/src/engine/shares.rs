//! Who else takes what is due, so that workers do not get in each other's way. Nothing depends on it but how much work is wasted.

use std::{collections::HashMap, sync::Arc, time::Duration};

use milestone_core::record::{DEFAULT_QUEUE, MilestoneId};
use tokio::time::Instant;

use super::{Engine, message::Message};
use crate::store::{Claimed, Share, StoreError, WorkerInfo};

/// How long others are given for what is in their share, at the least and at the most: longer where claims take longer.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// How many are taken at once at first, and at last.
const FEW: usize = 2;
const MANY: usize = 1 << 20;

/// Where no other worker has been in the way for so long, a worker that does not take what is its own is one that takes nothing at all.
const QUIET: Duration = Duration::from_secs(10);

/// The shortest time between two looks at the other workers.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) struct Shares {
    part: u32,
    of: u32,
    /// What was seen as due and left to others, since when.
    left: HashMap<MilestoneId, Instant>,
    /// How many are taken at once at the most: few, until it is known that nobody gets in the way.
    most: usize,
    /// What others are given for what is in their share.
    patience: Duration,
    /// When another worker was last in the way.
    missed: Option<Instant>,
    looked: Option<Instant>,
    /// Whether a look at the other workers is on its way: what is due waits for it.
    pub(super) looking: bool,
}

impl Shares {
    pub(super) fn new() -> Self {
        Self {
            part: 0,
            of: 1,
            left: HashMap::new(),
            most: FEW,
            patience: PATIENCE.0,
            missed: None,
            looked: None,
            looking: false,
        }
    }

    /// Whether the last look has left something to others.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// A claim took so long here, and may take as long elsewhere.
    pub(super) fn took(&mut self, time: Duration) {
        // Those of others may be larger ones: it comes down slowly.
        let patience = (time * 2).max(self.patience * 7 / 8);
        self.patience = patience.clamp(PATIENCE.0, PATIENCE.1);
    }

    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) const fn most(&self) -> usize {
        self.most
    }

    pub(super) fn share(&self, now: Instant) -> Share {
        let left = self.left.iter();
        let left = left.map(|(id, since)| (id.clone(), now - *since));
        Share::new(self.part, self.of, left.collect(), self.patience)
    }

    /// What a look has come to: how many were taken, and how many others took. Tells whether it is to be seen who they are.
    fn learn(&mut self, taken: usize, missed: usize, stolen: bool, now: Instant) -> bool {
        if missed > taken {
            self.most = (self.most / 2).max(FEW);
        } else if taken > 0 {
            self.most = (self.most * 2).min(MANY);
        }
        if missed > 0 {
            self.missed = Some(now);
            return true;
        }
        let quiet = self.missed.is_none_or(|at| now - at > QUIET);
        if stolen && quiet {
            (self.part, self.of) = (0, 1);
        }
        stolen && !quiet
    }

    /// What the last look has left to others.
    fn leave(&mut self, left: Vec<MilestoneId>, now: Instant) {
        let mut before = std::mem::take(&mut self.left);
        let since = left.into_iter().map(|id| {
            let since = before.remove(&id).unwrap_or(now);
            (id, since)
        });
        self.left = since.collect();
    }

    /// Takes a place among those who work on the same.
    fn set(&mut self, worker: &str, others: impl Iterator<Item = String>) {
        let mut all: Vec<String> = others.filter(|other| other != worker).collect();
        let before = all.iter().filter(|other| other.as_str() < worker).count();
        all.push(worker.to_owned());
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        (self.part, self.of) = (count(before), count(all.len()));
    }
}

impl Engine {
    /// Another worker was in the way, or did not take what is its own: who they are may have changed.
    pub(super) fn learn_from(&mut self, claimed: &Claimed) {
        let now = Instant::now();
        let share = self.shares.share(now);
        let mut taken = claimed.records.iter();
        let stolen = taken.any(|record| !share.falls_to_me(&record.id));
        let (taken, missed) = (claimed.records.len(), claimed.missed);
        let changed = self.shares.learn(taken, missed, stolen, now);
        self.shares.leave(claimed.left.clone(), now);
        if changed {
            self.look_at_others();
        }
    }

    fn look_at_others(&mut self) {
        let now = Instant::now();
        let shares = &mut self.shares;
        if shares.looking || shares.looked.is_some_and(|at| now - at < LOOK_EVERY) {
            return;
        }
        (shares.looking, shares.looked) = (true, Some(now));
        let store = Arc::clone(&self.shared.store);
        self.call(async move { store.workers().await }, Message::Workers);
    }

    pub(super) fn others(&mut self, result: Result<Vec<WorkerInfo>, StoreError>) {
        self.shares.looking = false;
        let workers = match result {
            Ok(workers) => workers,
            Err(error) => {
                tracing::debug!(worker = %self.shared.worker, %error, "who else works cannot be read now");
                return;
            }
        };
        let now = self.now();
        let (queues, methods) = (self.shared.registry.queues(), self.shared.registry.names());
        let shares_queue = |queue: &String| queue == DEFAULT_QUEUE || queues.contains(queue);
        let others = workers.into_iter().filter(|other| {
            other.lives_at(now)
                && other.queues.iter().any(shares_queue)
                && other.methods.iter().any(|method| methods.contains(method))
        });
        self.shares
            .set(&self.shared.worker, others.map(|other| other.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_take_different_places() {
        let all = ["b", "a", "c"];
        let mut parts = Vec::new();
        for worker in all {
            let mut shares = Shares::new();
            shares.set(worker, all.into_iter().map(str::to_owned));
            assert_eq!(shares.of, 3);
            parts.push(shares.part);
        }
        assert_eq!(parts, [1, 0, 2]);
        let mut alone = Shares::new();
        alone.set("a", std::iter::empty());
        assert_eq!((alone.part, alone.of), (0, 1));
    }

    #[test]
    fn it_begins_with_few_and_takes_more_while_nobody_is_in_the_way() {
        let now = Instant::now();
        let mut shares = Shares::new();
        assert!(!shares.learn(2, 0, false, now));
        assert!(!shares.learn(4, 0, false, now));
        assert_eq!(shares.most(), 4 * FEW);
        assert!(
            !shares.learn(0, 0, false, now),
            "an idle look tells nothing"
        );
        assert!(shares.learn(3, 5, false, now));
        assert_eq!(shares.most(), 2 * FEW);
    }

    #[test]
    fn a_share_is_given_up_where_nobody_takes_the_others() {
        let now = Instant::now();
        let mut shares = Shares::new();
        shares.set("a", ["b".to_owned()].into_iter());
        assert!(shares.learn(1, 1, false, now));
        assert!(shares.learn(1, 0, true, now), "it may be dead");
        assert_eq!(shares.of, 2);
        assert!(!shares.learn(1, 0, true, now + 2 * QUIET));
        assert_eq!(shares.of, 1);
    }

    #[test]
    fn what_is_left_is_remembered_while_it_is_seen() {
        let now = Instant::now();
        let later = now + Duration::from_millis(30);
        let mut shares = Shares::new();
        shares.leave(vec!["a".into(), "b".into()], now);
        shares.leave(vec!["b".into(), "c".into()], later);
        let share = shares.share(later);
        let anybodys = ["a", "b", "c"].map(|id| share.is_anybodys(&id.into()));
        assert_eq!(anybodys, [false, true, false]);
    }
}
