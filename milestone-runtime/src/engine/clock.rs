//! The server's time, as far as it can be known here: what the server said last, and the monotonic clock since. The wall clock of this
//! machine is never asked, so a wrong one harms nothing.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use bson::DateTime;
use tokio::time::Instant;

/// How much faster or slower than the server's this machine's clock may go: one in so many.
const DRIFT: u32 = 1_000;

/// An estimate of the server's time.
#[derive(Debug)]
pub(crate) struct Clock {
    read: RwLock<Reading>,
}

/// What the server's time was between, at some moment. A reply that took long tells little: the time in it may have been read as the
/// request arrived, or as the reply left.
#[derive(Clone, Copy, Debug)]
struct Reading {
    earliest: i64,
    latest: i64,
    at: Instant,
}

impl Reading {
    fn new(server: DateTime, round_trip: Duration) -> Self {
        let server = server.timestamp_millis();
        Self {
            earliest: server,
            latest: server.saturating_add(millis(round_trip)),
            at: Instant::now(),
        }
    }

    /// The same at this moment.
    fn now(self) -> Self {
        let elapsed = self.at.elapsed();
        let drift = millis(elapsed / DRIFT);
        let elapsed = millis(elapsed);
        Self {
            earliest: self.earliest.saturating_add(elapsed - drift),
            latest: self.latest.saturating_add(elapsed + drift),
            at: Instant::now(),
        }
    }
}

impl Clock {
    /// The server has told its time; the call that asked took `round_trip`.
    pub(crate) fn new(server: DateTime, round_trip: Duration) -> Self {
        Self {
            read: RwLock::new(Reading::new(server, round_trip)),
        }
    }

    /// The server has told its time again. What was known before stays known, unless the two exclude each other: then its clock was set.
    pub(crate) fn set(&self, server: DateTime, round_trip: Duration) {
        let new = Reading::new(server, round_trip);
        let mut read = self.read.write().unwrap_or_else(PoisonError::into_inner);
        let old = read.now();
        let both = Reading {
            earliest: old.earliest.max(new.earliest),
            latest: old.latest.min(new.latest),
            at: new.at,
        };
        *read = if both.earliest <= both.latest {
            both
        } else {
            new
        };
    }

    /// The server's time; it may be later, never earlier. So no lease looks over that is not.
    pub(crate) fn now(&self) -> DateTime {
        DateTime::from_millis(self.read().earliest)
    }

    /// The latest that the server's time can be.
    pub(crate) fn latest(&self) -> DateTime {
        DateTime::from_millis(self.read().latest)
    }

    pub(crate) fn in_future(&self, by: Duration) -> DateTime {
        DateTime::from_millis(self.now().timestamp_millis().saturating_add(millis(by)))
    }

    /// How long it is until it is past that time for sure: a millisecond more, since times are in whole ones.
    pub(crate) fn wait_until(&self, at: DateTime) -> Duration {
        let wait = at
            .timestamp_millis()
            .saturating_sub(self.now().timestamp_millis());
        Duration::from_millis(u64::try_from(wait).map_or(0, |wait| wait + 1))
    }

    fn read(&self) -> Reading {
        self.read
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .now()
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn at(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reply_never_makes_it_run_ahead() {
        let clock = Clock::new(at(10_000), ms(4_000));
        assert_eq!((clock.now(), clock.latest()), (at(10_000), at(14_000)));
        advance(ms(500)).await;
        clock.set(at(10_510), ms(20));
        assert_eq!((clock.now(), clock.latest()), (at(10_510), at(10_530)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reply_takes_nothing_from_what_is_known() {
        let clock = Clock::new(at(10_000), ms(10));
        advance(ms(3_000)).await;
        clock.set(at(10_100), ms(3_000));
        assert_eq!((clock.now(), clock.latest()), (at(12_997), at(13_013)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_clock_was_set_is_believed() {
        let clock = Clock::new(at(10_000), ms(10));
        clock.set(at(2_000), ms(10));
        assert_eq!(clock.now(), at(2_000));
        clock.set(at(90_000), ms(10));
        assert_eq!(clock.now(), at(90_000));
    }
}
