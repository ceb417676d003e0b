//! Short ways to look at a stored milestone.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use milestone_runtime::{
    Runtime,
    core::record::{ActionRecord, Attempt, MilestoneId, MilestoneRecord},
};

/// How long a test waits for what is to come: much longer than it takes, also on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(1);

/// The action of that name.
///
/// # Panics
/// If there is none.
pub fn action<'r>(record: &'r MilestoneRecord, name: &str) -> &'r ActionRecord {
    record
        .action(name)
        .unwrap_or_else(|| panic!("there is no action `{name}`"))
        .1
}

/// The attempts of an action, newest first.
pub fn attempts<'r>(record: &'r MilestoneRecord, name: &str) -> Vec<&'r Attempt> {
    record
        .report
        .iter()
        .filter(|attempt| attempt.action == name)
        .collect()
}

/// Whether each attempt of an action succeeded, newest first.
pub fn successes(record: &MilestoneRecord, name: &str) -> Vec<Option<bool>> {
    attempts(record, name)
        .iter()
        .map(|attempt| attempt.success)
        .collect()
}

/// Reads a milestone until it is as expected. A test that waits for what never comes is ended by its own timeout.
///
/// # Panics
/// If the milestone cannot be read.
pub async fn until(
    runtime: &Runtime,
    id: &MilestoneId,
    expected: impl Fn(&MilestoneRecord) -> bool,
) -> MilestoneRecord {
    let began = Instant::now();
    loop {
        let record = runtime
            .get(id.clone())
            .await
            .expect("the database answers")
            .expect("the milestone is there");
        if expected(&record) {
            return record;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "the milestone is still, after {PATIENCE:?}, {record:#?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until something is true.
///
/// # Panics
/// If it never is.
pub async fn until_true(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(
            began.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Calls again until it succeeds: a test that breaks other things is not to end of a connection that was closed, or of a server that had no
/// time.
///
/// # Panics
/// If it never does.
pub async fn patiently<T, E: Display>(call: impl AsyncFn() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        let error = match call().await {
            Ok(done) => return done,
            Err(error) => error,
        };
        assert!(
            began.elapsed() < PATIENCE,
            "it has failed for {PATIENCE:?}: {error}"
        );
        eprintln!("again, since it has failed: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A number that the environment may set, for a run that takes longer.
///
/// # Panics
/// If it is set to something else.
pub fn from_env(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| {
        let number = value.parse();
        number.unwrap_or_else(|error| panic!("{name} is no number: {error}"))
    })
}
