//! How much a claim may take.

/// What is known when a claim is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    /// The places that are free.
    pub(super) free: usize,
    /// How many milestones were started here since the last claim.
    pub(super) started: usize,
    /// Whether one was ever started here.
    pub(super) starts: bool,
    /// Whether a claim may begin what it takes.
    pub(super) may_begin: bool,
    /// Whether there is probably something to take.
    pub(super) is_likely: bool,
    /// How many were told to be due, where there can be no others.
    pub(super) told: Option<usize>,
    /// How many are taken at once at the most, since other workers get in the way.
    pub(super) most: usize,
}

/// How much a claim may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) limit: usize,
    /// Whether it begins what it takes, whose places are promised to it then.
    pub(super) begins: bool,
}

impl Asking {
    /// What it begins has its places from now on. So that is done only where there is probably something, and some places are left to
    /// milestones that are started here: a start that finds none costs a write more.
    pub(super) fn room(self) -> Room {
        let kept = if self.starts {
            self.started
                .max(self.free.div_ceil(4))
                .min(self.free.div_ceil(2))
        } else {
            // For the first one.
            1
        };
        let left = self.free.saturating_sub(kept);
        let begins = self.may_begin && self.is_likely && left > 0;
        let limit = if begins { left } else { self.free };
        // What was not told is found by the look that follows.
        let told = self.told.map_or(usize::MAX, |told| told.max(1));
        Room {
            limit: limit.min(told).min(self.most),
            begins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: Asking = Asking {
        free: 64,
        started: 0,
        starts: false,
        may_begin: true,
        is_likely: true,
        told: None,
        most: usize::MAX,
    };

    fn room(limit: usize, begins: bool) -> Room {
        Room { limit, begins }
    }

    #[test]
    fn a_worker_that_starts_nothing_fills_its_places() {
        assert_eq!(WORKER.room(), room(63, true));
        // What is taken without being begun does not keep the last place.
        assert_eq!(Asking { free: 1, ..WORKER }.room(), room(1, false));
    }

    #[test]
    fn where_milestones_are_started_some_places_are_left_to_them() {
        let starts = |free, started| {
            let asking = Asking {
                free,
                started,
                starts: true,
                ..WORKER
            };
            asking.room()
        };
        assert_eq!(starts(64, 0), room(48, true));
        assert_eq!(starts(64, 20), room(44, true));
        assert_eq!(starts(64, 1000), room(32, true));
        assert_eq!(starts(1, 0), room(1, false));
    }

    #[test]
    fn what_may_find_nothing_promises_no_place() {
        let unlikely = Asking {
            is_likely: false,
            starts: true,
            ..WORKER
        };
        assert_eq!(unlikely.room(), room(64, false));
        let forbidden = Asking {
            may_begin: false,
            ..WORKER
        };
        assert_eq!(forbidden.room(), room(64, false));
    }

    #[test]
    fn no_more_is_asked_for_than_can_be_there_or_others_leave() {
        let told = |told| {
            let asking = Asking {
                told: Some(told),
                ..WORKER
            };
            asking.room().limit
        };
        assert_eq!([told(0), told(5), told(100)], [1, 5, 63]);
        assert_eq!(Asking { most: 2, ..WORKER }.room(), room(2, true));
    }
}
