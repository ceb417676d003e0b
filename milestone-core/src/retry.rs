//! When a failed attempt is made again: exponential backoff with full jitter on the upper half, as Temporal and Oban do.

use std::time::Duration;

/// How errors of an action are retried.
///
/// ```
/// use std::time::Duration;
/// use milestone_core::retry::RetryPolicy;
///
/// let policy = RetryPolicy::new().max(3).base(Duration::from_secs(2));
/// assert_eq!(policy.delay(1, 1.0), Some(Duration::from_secs(2)));
/// assert_eq!(policy.delay(2, 1.0), Some(Duration::from_secs(4)));
/// assert_eq!(policy.delay(3, 1.0), None, "three attempts in all");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct RetryPolicy {
    /// How many attempts in all; `None` is without end. `Some(1)` never retries.
    pub max: Option<u32>,
    /// The wait after the first failure. Default 1 s.
    pub base: Duration,
    /// The longest wait. Default 5 min.
    pub cap: Duration,
    /// What the wait is multiplied by from failure to failure. Default 2.
    pub factor: u32,
}

impl RetryPolicy {
    /// Without end, after 1 s, 2 s, 4 s, .. up to 5 min.
    pub const fn new() -> Self {
        Self {
            max: None,
            base: Duration::from_secs(1),
            cap: Duration::from_mins(5),
            factor: 2,
        }
    }

    /// One attempt, no retry.
    pub const fn never() -> Self {
        Self {
            max: Some(1),
            ..Self::new()
        }
    }

    /// Sets how many attempts are made in all.
    pub const fn max(mut self, attempts: u32) -> Self {
        self.max = Some(attempts);
        self
    }

    /// Sets the wait after the first failure.
    pub const fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets the longest wait.
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets what the wait is multiplied by from failure to failure.
    pub const fn factor(mut self, factor: u32) -> Self {
        self.factor = factor;
        self
    }

    /// The wait after the `failures`-th failure (from 1), or `None` when no attempt is left.
    ///
    /// `jitter` from 0 to 1 spreads the wait over its upper half, so that those who failed together do not come back together.
    #[must_use]
    pub fn delay(&self, failures: u32, jitter: f64) -> Option<Duration> {
        if self.max.is_some_and(|max| failures >= max) {
            return None;
        }
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let growth = f64::from(self.factor).powi(exponent);
        let wait = if self.base.is_zero() {
            0.0 // Zero times infinity is no number.
        } else {
            (self.base.as_secs_f64() * growth).min(self.cap.as_secs_f64())
        };
        let jitter = if jitter.is_nan() {
            1.0
        } else {
            jitter.clamp(0.0, 1.0)
        };
        let wait = Duration::try_from_secs_f64(wait * (0.5 + 0.5 * jitter));
        Some(wait.map_or(self.cap, |wait| wait.min(self.cap)))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let policy = RetryPolicy::new();
        let waits: Vec<u64> = [1, 2, 3, 9, 10, 4_000_000_000]
            .map(|n| policy.delay(n, 1.0).expect("without end").as_secs())
            .to_vec();
        assert_eq!(waits, [1, 2, 4, 256, 300, 300]);
    }

    #[test]
    fn jitter_stays_in_the_upper_half() {
        let policy = RetryPolicy::new();
        assert_eq!(policy.delay(2, 0.0), Some(Duration::from_secs(1)));
        assert_eq!(policy.delay(2, 7.0), Some(Duration::from_secs(2)));
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        let policy = RetryPolicy::new();
        assert_eq!(policy.delay(1, f64::NAN), Some(Duration::from_secs(1)));
        assert_eq!(
            policy.base(Duration::ZERO).delay(u32::MAX, 1.0),
            Some(Duration::ZERO)
        );
        assert_eq!(
            policy.factor(0).delay(2, 1.0),
            Some(Duration::ZERO),
            "a factor of zero waits once"
        );
        let endless = policy.cap(Duration::MAX).factor(u32::MAX);
        assert_eq!(endless.delay(u32::MAX, 1.0), Some(Duration::MAX));
    }

    #[test]
    fn the_last_attempt_has_no_wait() {
        assert_eq!(RetryPolicy::new().max(3).delay(3, 0.5), None);
        assert!(RetryPolicy::new().max(3).delay(2, 0.5).is_some());
        assert_eq!(RetryPolicy::never().delay(1, 0.5), None);
    }
}
