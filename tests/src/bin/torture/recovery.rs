//! How long it takes until what a killed worker was at runs elsewhere, with the default settings: a lease of 10 s and a poll of 1 s.

use std::{
    fmt,
    time::{Duration, Instant},
};

use fastrand::Rng;
use milestone_tests::{
    journal::{self, What},
    worker_process::Program,
};
use tempfile::TempDir;

use crate::stage::{Where, worker_program};

const KILLS: usize = 20;
const LEASE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(1);

/// How long each took.
pub(crate) struct Recovery {
    times: Vec<Duration>,
    bound: Duration,
}

impl Recovery {
    /// All of them came back, each within the bound.
    pub(crate) fn is_good(&self) -> bool {
        self.times.len() == KILLS && self.times.iter().all(|time| *time <= self.bound)
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, bound) = (Times::of(&self.times), self.bound.as_secs_f64());
        write!(
            f,
            "{times} after SIGKILL, default settings (bound {bound} s)"
        )?;
        if self.times.len() < KILLS {
            write!(f, "; {} of {KILLS} never", KILLS - self.times.len())?;
        }
        Ok(())
    }
}

/// The median and the maximum of some times.
pub(crate) struct Times {
    median: Duration,
    maximum: Duration,
    count: usize,
}

impl Times {
    pub(crate) fn of(times: &[Duration]) -> Self {
        let mut times = times.to_vec();
        times.sort();
        Self {
            median: times.get(times.len() / 2).copied().unwrap_or_default(),
            maximum: times.last().copied().unwrap_or_default(),
            count: times.len(),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, maximum) = (self.median.as_secs_f64(), self.maximum.as_secs_f64());
        write!(
            f,
            "median {median:.2} s, maximum {maximum:.2} s of {}",
            self.count
        )
    }
}

/// Kills workers, each in the middle of the first action of a milestone of its own, at any time between two of its renewals.
pub(crate) async fn measure(place: &Where, seed: u64) -> Recovery {
    let mut rng = Rng::with_seed(seed ^ 2);
    let folder = TempDir::new().expect("a temporary folder");
    let (uri, _server) = place.open(&folder).await;
    let program = Program {
        path: worker_program(),
        uri,
        journal: folder.path().join("journal"),
        errors: None,
        lease: Duration::ZERO,
        poll: Duration::ZERO,
    };
    let _heirs = [program.start("heir-1"), program.start("heir-2")];
    let mut victims: Vec<_> = (0..KILLS)
        .map(|number| {
            let id = format!("recovery-{number}");
            let worker = program.start_hanging(&format!("victim-{number}"), &id);
            (id, worker, Duration::from_millis(rng.u64(..7_000)))
        })
        .collect();
    let begun = |attempt: i64| {
        let entries = journal::read(&program.journal).into_iter();
        let begun = entries.filter(move |entry| {
            entry.what == What::Begun && entry.action == "fetch" && entry.attempt == attempt
        });
        begun.collect::<Vec<_>>()
    };
    wait(|| begun(1).len() == KILLS).await;
    // A worker that has just started takes no lease of others.
    tokio::time::sleep(LEASE + POLL).await;
    victims.sort_by_key(|(_, _, at)| *at);
    let (start, mut killed) = (Instant::now(), Vec::new());
    for (id, worker, at) in &mut victims {
        tokio::time::sleep(at.saturating_sub(start.elapsed())).await;
        worker.kill();
        killed.push((id.clone(), journal::now()));
    }
    wait(|| begun(2).len() == KILLS).await;
    let again = begun(2);
    let times = killed.iter().filter_map(|(id, at)| {
        let entry = again.iter().find(|entry| entry.milestone == *id)?;
        Some(Duration::from_millis(entry.at.saturating_sub(*at)))
    });
    let bound = match place {
        // The lock of a dead worker is free at once.
        Where::Sqlite => 2 * POLL,
        _ => LEASE + POLL,
    };
    Recovery {
        times: times.collect(),
        bound,
    }
}

async fn wait(mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
