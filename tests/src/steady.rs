//! Tests of what holds only where the machine does not stand still: that a worker which lives keeps its lease beside others that would take
//! it. A lease of half a second is lost by a machine that stops for half a second, and should be.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;

/// How often a test is tried.
const TRIES: usize = 5;

/// How often it is looked whether the machine goes on.
const BEAT: Duration = Duration::from_millis(5);

/// Runs a test which gives something `time` for what takes far less of it, such as a lease. If it fails, and the machine stood still for a
/// fifth of that meanwhile, it runs once more, from its beginning; five times at the most. On a machine that goes on, each failure
/// is one.
///
/// # Panics
/// As the test does.
pub async fn steadily(time: Duration, test: impl AsyncFn()) {
    let mut tries = 1;
    loop {
        let pulse = Pulse::start();
        let Err(panic) = AssertUnwindSafe(test()).catch_unwind().await else {
            return;
        };
        let stood_still = pulse.longest();
        if stood_still < time / 5 || tries == TRIES {
            println!("try {tries}: the machine stood still for {stood_still:?} at the longest");
            resume_unwind(panic);
        }
        println!("try {tries} does not count, since the machine stood still for {stood_still:?}");
        tries += 1;
    }
}

/// A thread that sees for how long the machine stands still at the longest.
struct Pulse {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Pulse {
    fn start() -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let thread = thread::spawn({
            let goes_on = Arc::clone(&goes_on);
            move || {
                let mut longest = Duration::ZERO;
                while goes_on.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    thread::sleep(BEAT);
                    longest = longest.max(before.elapsed().saturating_sub(BEAT));
                }
                longest
            }
        });
        let thread = Some(thread);
        Self { goes_on, thread }
    }

    fn longest(mut self) -> Duration {
        self.goes_on.store(false, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often a test is run that fails in its first runs, and whether it is good in the end.
    async fn runs(time: Duration, fails: usize) -> (usize, bool) {
        let runs = Cell::new(0);
        let test = steadily(time, async || {
            runs.set(runs.get() + 1);
            assert!(runs.get() > fails, "it fails");
        });
        let end = AssertUnwindSafe(test).catch_unwind().await;
        (runs.get(), end.is_ok())
    }

    #[tokio::test]
    async fn where_the_machine_goes_on_a_failure_is_one() {
        let long = Duration::from_hours(1);
        assert_eq!(runs(long, 0).await, (1, true));
        assert_eq!(runs(long, 1).await, (1, false));
    }

    #[tokio::test]
    async fn where_it_stands_still_a_test_is_tried_again() {
        // No machine is as quick as that.
        let none = Duration::ZERO;
        assert_eq!(runs(none, TRIES - 1).await, (TRIES, true));
        assert_eq!(runs(none, TRIES).await, (TRIES, false));
    }

    #[test]
    fn it_is_seen_how_long_it_stands_still() {
        let pulse = Pulse::start();
        thread::sleep(10 * BEAT);
        let longest = pulse.longest();
        assert!(longest < Duration::from_secs(10), "{longest:?}");
    }
}
