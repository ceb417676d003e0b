//! Workers whose wall clocks are wrong. Nothing asks them: time is the server's, and the monotonic clock since.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{env, path::PathBuf, time::Duration};

use milestone_runtime::core::record::{MilestoneRecord, Status};
use milestone_tests::{
    journal,
    load::{Kind, paced},
    on_stores,
    place::Place,
    verdict::{by_milestone, judge},
    worker_process::Program,
};
use tempfile::TempDir;

// On SQLite the machine's clock is the server's, so there is no other one that could be wrong.
on_stores!(steadily LEASE, mongodb: clocks_that_are_an_hour_wrong_harm_nothing);

const HOUR: i64 = 3_600;
const LEASE: Duration = Duration::from_millis(1_500);

/// Cargo builds it where it builds the tests.
fn skewed_clock() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().join("libskewed_clock.so")
}

/// A worker that is an hour ahead sees each lease of the others as over, if it asks its own clock; one that is an hour behind sees nothing
/// as due. So the actions take longer than a lease, are retried after a while, and wait for workers.
async fn clocks_that_are_an_hour_wrong_harm_nothing(place: Place) {
    let folder = TempDir::new().unwrap();
    let program = Program {
        path: PathBuf::from(env!("CARGO_BIN_EXE_torture_worker")),
        uri: place.uri(),
        journal: folder.path().join("journal"),
        errors: None,
        lease: LEASE,
        poll: Duration::from_millis(100),
    };
    let clock = skewed_clock();
    let mut workers = Vec::new();
    for (name, seconds) in [("ahead", HOUR), ("behind", -HOUR)] {
        let (worker, believes) = program.start_skewed(name, &clock, seconds);
        let wrong = i64::try_from(believes).unwrap() - i64::try_from(journal::now()).unwrap();
        assert!(
            (wrong - seconds * 1_000).abs() < 60_000,
            "{name} is {wrong} ms off"
        );
        workers.push(worker);
    }
    workers.push(program.start("right"));

    let client = place.builder().client().build().await.unwrap();
    let server = place.store().await.now().await.unwrap().timestamp_millis();
    let mut handles = Vec::new();
    for number in 0..60 {
        let kind = [Kind::Retry, Kind::Saga, Kind::Charge][number % 3];
        // Some take longer than a lease an action.
        let long = number % 9 == 2;
        let takes = if long { LEASE * 4 / 3 } else { LEASE / 30 };
        let start = client.start(kind.name(), kind.graph(), paced(takes));
        handles.push((kind, start.id(format!("m{number}")).await.unwrap()));
    }
    let mut records = Vec::new();
    for (kind, handle) in &handles {
        while !handle.status().await.unwrap().is_terminal() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let record = handle.record().await.unwrap();
        assert_eq!(record.state, kind.ends(), "{record:#?}");
        records.push(record);
    }
    let ended = place.store().await.now().await.unwrap().timestamp_millis();
    let entries = by_milestone(journal::read(&program.journal));
    let mut shares = [0; 3];
    for record in &records {
        let problems = judge(record, &entries[&record.id.to_string()], |_| 1);
        assert!(problems.is_empty(), "{problems:#?}");
        no_lease_was_stolen(record);
        for at in dates(record) {
            // The server's clock and this machine's may differ in part by what a round trip takes.
            assert!(
                (server - 2_000..=ended + 2_000).contains(&at),
                "{at} is not between {server} and {ended}: {record:#?}"
            );
        }
        for attempt in &record.report {
            let who = ["ahead", "behind", "right"]
                .iter()
                .position(|name| attempt.worker.starts_with(name));
            shares[who.unwrap()] += 1;
        }
    }
    println!("attempts of the one that is ahead, behind, right: {shares:?}");
    // None of them believes that there is nothing to do.
    assert!(shares.iter().all(|attempts| *attempts > 0), "{shares:?}");
}

/// A lease that was taken from a worker that lived leaves an attempt that was abandoned.
fn no_lease_was_stolen(record: &MilestoneRecord) {
    let lost: Vec<_> = record
        .report
        .iter()
        .filter(|attempt| attempt.kind.is_some())
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
    assert_eq!(record.losses, 0);
}

fn dates(record: &MilestoneRecord) -> Vec<i64> {
    let mut dates = vec![record.created_at];
    dates.extend(record.begin_date);
    dates.extend(record.end_date);
    for attempt in &record.report {
        dates.extend([attempt.begin_date, attempt.end_date]);
    }
    assert!(record.state == Status::Completed || record.unwind.is_some());
    dates.extend(record.unwind.as_ref().map(|unwind| unwind.since));
    dates.iter().map(|date| date.timestamp_millis()).collect()
}
