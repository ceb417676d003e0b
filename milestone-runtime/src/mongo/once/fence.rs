//! Until when a write may be applied: what keeps those of workers that no longer hold their milestone out. Pure.

use std::time::Duration;

use bson::DateTime;

/// No write takes longer than that.
const LONGEST: Duration = Duration::from_secs(5);

/// Bounds in time for one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    /// The server begins with it before that time, or never.
    pub(super) until: DateTime,
    /// What it begins with in time is over after this.
    pub(super) max_time: Duration,
    /// How long it may wait for the majority.
    pub(super) patience: Duration,
}

impl Fence {
    /// After that time the server is done with it.
    pub(super) fn end(&self) -> DateTime {
        let until = self.until.timestamp_millis();
        DateTime::from_millis(until.saturating_add(millis(self.max_time)))
    }
}

/// What is known of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The acknowledged end of the lease.
    pub(super) lease_until: DateTime,
    /// The earliest and the latest that the server's time can be.
    pub(super) now: DateTime,
    pub(super) latest: DateTime,
}

/// The fence of a write that is sent now; `None` if the lease ends too soon.
///
/// Before the acknowledged end of the lease nobody else has taken the milestone over. The second bound is for what is read before the
/// write, and for the marker that it leaves, which is removed one and a half times the skew after it is of no more use: a late copy is
/// refused by then, also by a server whose clock is behind by the skew.
pub(super) fn fence(
    times: Times,
    lease: Duration,
    skew: Duration,
    patience: Duration,
) -> Option<Fence> {
    let max_time = (lease / 5)
        .min(skew / 8)
        .clamp(Duration::from_millis(1), LONGEST);
    let fresh = times
        .now
        .timestamp_millis()
        .saturating_add(millis(skew * 3 / 8));
    let end = times.lease_until.timestamp_millis().min(fresh);
    let until = end.saturating_sub(millis(max_time));
    let needed = millis(lease.min(skew) / 20).max(1);
    (times.latest.timestamp_millis().saturating_add(needed) < until).then(|| Fence {
        until: DateTime::from_millis(until),
        max_time,
        patience,
    })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const SKEW: Duration = Duration::from_mins(1);

    fn of(lease_until: i64, now: i64, latest: i64, skew: Duration) -> Option<i64> {
        let [lease_until, now, latest] = [lease_until, now, latest].map(DateTime::from_millis);
        let times = Times {
            lease_until,
            now,
            latest,
        };
        let fence = fence(times, LEASE, skew, LEASE)?;
        Some(fence.end().timestamp_millis())
    }

    #[test]
    fn a_write_is_over_before_the_lease_is() {
        assert_eq!(of(10_000, 1_000, 1_010, SKEW), Some(10_000));
        let times = Times {
            lease_until: DateTime::from_millis(10_000),
            now: DateTime::from_millis(1_000),
            latest: DateTime::from_millis(1_000),
        };
        let fence = fence(times, LEASE, SKEW, LEASE).unwrap();
        assert_eq!(
            (fence.until, fence.max_time),
            (DateTime::from_millis(8_000), Duration::from_secs(2))
        );
    }

    #[test]
    fn a_write_is_over_before_what_was_read_is_old() {
        let skew = Duration::from_secs(1);
        assert_eq!(of(10_000, 1_000, 1_010, skew), Some(1_375));
    }

    #[test]
    fn a_lease_that_ends_soon_is_renewed_first() {
        assert_eq!(of(10_000, 7_400, 7_400, SKEW), Some(10_000));
        assert_eq!(of(10_000, 7_500, 7_500, SKEW), None);
        assert_eq!(of(10_000, 12_000, 12_000, SKEW), None);
    }

    #[test]
    fn a_time_that_is_not_known_well_is_no_reason_to_write() {
        assert_eq!(of(10_000, 1_000, 9_000, SKEW), None);
    }
}
