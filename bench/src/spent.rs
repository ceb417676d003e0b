//! What a measurement took: time, and what this process computed meanwhile, which a busy machine changes less.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::statistics::{float, rate};

/// Runs from the start of a measurement to its end.
pub(crate) struct Meter {
    began: Instant,
    computed: Duration,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self {
            computed: computed(),
            began: Instant::now(),
        }
    }

    pub(crate) fn stop(self) -> Spent {
        let time = self.began.elapsed();
        Spent {
            time,
            computed: computed().saturating_sub(self.computed),
        }
    }
}

/// What a measurement took.
pub(crate) struct Spent {
    time: Duration,
    /// By all threads of this process, since they began.
    computed: Duration,
}

impl Spent {
    /// How many a second.
    pub(crate) fn rate(&self, count: usize) -> f64 {
        rate(count, self.time)
    }

    /// Microseconds that this process computed for each.
    pub(crate) fn computed_for(&self, count: usize) -> f64 {
        self.computed.as_secs_f64() * 1e6 / float(count)
    }
}

/// The time that all threads of this process have computed.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_computes_spends_time_of_its_own() {
        let meter = Meter::start();
        let mut sum = 0_u64;
        while computed() < meter.computed + Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let spent = meter.stop();
        assert!(spent.computed >= Duration::from_millis(2));
        assert!(spent.rate(1) > 0.0 && spent.computed_for(2) >= 1_000.0);
    }
}
