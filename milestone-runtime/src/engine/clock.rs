//! The server's time, as far as it can be known here: what the server said last, and the monotonic clock since. The wall clock of this
//! machine is never asked, so a wrong one harms nothing.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use bson::DateTime;
use tokio::time::Instant;

/// An estimate of the server's time.
#[derive(Debug)]
pub(crate) struct Clock {
    read: RwLock<(i64, Instant)>,
}

impl Clock {
    pub(crate) fn new(server: DateTime) -> Self {
        Self {
            read: RwLock::new((server.timestamp_millis(), Instant::now())),
        }
    }

    /// The server has told its time; the call that asked took `round_trip`.
    pub(crate) fn set(&self, server: DateTime, round_trip: Duration) {
        let half = i64::try_from(round_trip.as_millis() / 2).unwrap_or(0);
        *self.read.write().unwrap_or_else(PoisonError::into_inner) =
            (server.timestamp_millis() + half, Instant::now());
    }

    pub(crate) fn now(&self) -> DateTime {
        let (server, at) = *self.read.read().unwrap_or_else(PoisonError::into_inner);
        DateTime::from_millis(
            server + i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX / 4),
        )
    }

    pub(crate) fn in_future(&self, by: Duration) -> DateTime {
        DateTime::from_millis(
            self.now().timestamp_millis() + i64::try_from(by.as_millis()).unwrap_or(i64::MAX / 4),
        )
    }

    /// How long it is until it is past that time for sure: a millisecond more, since times are in whole ones.
    pub(crate) fn wait_until(&self, at: DateTime) -> Duration {
        let wait = at
            .timestamp_millis()
            .saturating_sub(self.now().timestamp_millis());
        Duration::from_millis(u64::try_from(wait).map_or(0, |wait| wait + 1))
    }
}
