//! How often a transaction is run in one attempt, and how long is waited in between. Pure.

use std::time::{Duration, Instant};

use mongodb::error::Error;

use super::failures;
use crate::action::Failure;

/// How often others may come in between.
const MOST_TRIES: u32 = 40;

/// How long others may come in between.
const LONGEST: Duration = Duration::from_secs(30);

/// How often the transaction may be gone when its body has ended: by a failover, or since the body has swallowed an error.
const MOST_GONE: u32 = 3;

/// Why a transaction is run again.
#[derive(Debug)]
pub(super) enum Why {
    /// Others came in between.
    Conflict(Error),
    /// The server had aborted it when its body had ended.
    Gone(Error),
    /// The server cannot be reached: that is no failure of the action, however long it takes.
    Away(Error),
}

impl Why {
    pub(super) const fn error(&self) -> &Error {
        let (Self::Conflict(error) | Self::Gone(error) | Self::Away(error)) = self;
        error
    }
}

#[derive(Debug, Default)]
pub(super) struct Patience {
    tries: u32,
    gone: u32,
    away: u32,
    since: Option<Instant>,
}

impl Patience {
    /// How long to wait before it is run again; an error if it is not. `jitter` is from 0 to 1.
    pub(super) fn after(
        &mut self,
        why: &Why,
        now: Instant,
        jitter: f64,
    ) -> Result<Duration, Failure> {
        if let Why::Away(_) = why {
            (self.tries, self.since) = (0, None);
            self.away += 1;
            let wait = Duration::from_millis(50 << self.away.min(5));
            return Ok(wait.mul_f64(0.5 + jitter / 2.0));
        }
        self.away = 0;
        self.tries += 1;
        let time = now.saturating_duration_since(*self.since.get_or_insert(now));
        if let Why::Gone(error) = why {
            self.gone += 1;
            if self.gone >= MOST_GONE {
                return Err(failures::swallowed(error));
            }
        }
        if self.tries >= MOST_TRIES || time >= LONGEST {
            return Err(failures::out_of_patience(why.error(), self.tries, time));
        }
        // From 10 ms on, twice as much each time, up to a second.
        let longest = 5.0 * 2_f64.powf(f64::from(self.tries.min(12)));
        Ok(Duration::from_secs_f64(
            longest.min(1000.0) * (0.1 + 0.9 * jitter) / 1000.0,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict() -> Why {
        Why::Conflict(Error::custom("conflict"))
    }

    #[test]
    fn f29_others_may_come_in_between_within_a_bound() {
        let now = Instant::now();
        let mut patience = Patience::default();
        let mut waited = Duration::ZERO;
        for _ in 1..MOST_TRIES {
            waited += patience.after(&conflict(), now + waited, 0.5).unwrap();
        }
        assert!(
            waited > Duration::from_secs(5) && waited < LONGEST,
            "{waited:?}"
        );
        let failure = patience.after(&conflict(), now + waited, 0.5).unwrap_err();
        assert!(!failure.fatal);
        assert!(
            failure.error.message.contains("each of the 40 times"),
            "{}",
            failure.error.message
        );
        let mut slow = Patience::default();
        slow.after(&conflict(), now, 1.0).unwrap();
        let failure = slow.after(&conflict(), now + LONGEST, 1.0).unwrap_err();
        assert!(failure.error.message.contains("2 times"));
    }

    #[test]
    fn an_outage_of_any_length_is_no_failure() {
        let now = Instant::now();
        let mut patience = Patience::default();
        for hours in 0..100 {
            let away = Why::Away(Error::custom("away"));
            let wait = patience
                .after(&away, now + Duration::from_hours(hours), 1.0)
                .unwrap();
            assert!(wait <= Duration::from_secs(2));
        }
        patience
            .after(&conflict(), now + Duration::from_hours(100), 0.0)
            .unwrap();
    }

    #[test]
    fn f30_a_body_that_swallows_errors_is_not_run_for_ever() {
        let now = Instant::now();
        let mut patience = Patience::default();
        let gone = || Why::Gone(Error::custom("no such transaction"));
        for _ in 1..MOST_GONE {
            patience.after(&gone(), now, 0.5).unwrap();
        }
        let failure = patience.after(&gone(), now, 0.5).unwrap_err();
        assert!(failure.error.message.contains("`tx.note(&error)`"));
    }
}
