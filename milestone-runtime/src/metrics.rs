//! What a runtime counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a runtime has counted since it was built, see [`Runtime::metrics`](crate::Runtime::metrics). The numbers only grow, so the
/// difference of two of them says what happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// How often it has looked for work: at most one indexed query each, where nothing is due.
    pub claims: u64,
    /// How many milestones it has taken.
    pub claimed: u64,
    /// How many milestones it has seen as due and tried to take, but another worker was faster: wasted work. Many beside few that were taken
    /// mean more workers than there is work. Always 0 on SQLite, where one claims at a time.
    pub missed_claims: u64,
    /// How many hints have come from the database that something is due or has ended. None at all where a server has them and things happen:
    /// only polling finds the work.
    pub hints: u64,
}

/// The counters behind [`Metrics`].
#[derive(Debug, Default)]
pub(crate) struct Counts {
    claims: AtomicU64,
    claimed: AtomicU64,
    missed_claims: AtomicU64,
    hints: AtomicU64,
}

impl Counts {
    pub(crate) fn look(&self) {
        add(&self.claims, 1);
    }

    pub(crate) fn claimed(&self, taken: usize, missed: usize) {
        add(&self.claimed, taken as u64);
        add(&self.missed_claims, missed as u64);
    }

    pub(crate) fn hint(&self) {
        add(&self.hints, 1);
    }

    pub(crate) fn read(&self) -> Metrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            claims: read(&self.claims),
            claimed: read(&self.claimed),
            missed_claims: read(&self.missed_claims),
            hints: read(&self.hints),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_counted() {
        let counts = Counts::default();
        counts.look();
        counts.look();
        counts.claimed(3, 2);
        counts.claimed(1, 0);
        counts.hint();
        let expected = Metrics {
            claims: 2,
            claimed: 4,
            missed_claims: 2,
            hints: 1,
        };
        assert_eq!(counts.read(), expected);
    }
}
