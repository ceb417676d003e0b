//! A worker process is frozen for longer than its lease (SIGSTOP) and goes on later, as if no time had passed (SIGCONT).

use std::{path::PathBuf, time::Duration};

use milestone_runtime::{
    core::record::{AttemptKind, MilestoneRecord, Status},
    dynamic::Action,
};
use milestone_tests::{
    journal::{self, Entry, What},
    load::slow_at_first,
    look::{attempts, until, until_true},
    on_stores,
    place::Place,
    verdict::{by_milestone, judge},
    worker_process::Program,
};
use tempfile::TempDir;

use super::bench::LEASE;

on_stores!(steadily LEASE, sqlite, mongodb: f06_frozen_for_longer_than_its_lease);

/// Another worker takes over and ends. Then the first one goes on: one of its actions is ready at once, and its result changes nothing; the
/// other one is still at work, and is asked to stop. Both are reported as lost, not as errors of the user.
async fn f06_frozen_for_longer_than_its_lease(place: Place) {
    let folder = TempDir::new().unwrap();
    let program = Program {
        path: PathBuf::from(env!("CARGO_BIN_EXE_torture_worker")),
        uri: place.uri(),
        journal: folder.path().join("journal"),
        errors: None,
        lease: LEASE,
        poll: Duration::from_millis(100),
    };
    let client = place.builder().client().build().await.unwrap();
    let quick = Duration::from_millis(10);
    // What the frozen one is at takes half a second, and an hour.
    for (id, first) in [("short", LEASE / 2), ("long", Duration::from_hours(1))] {
        let start = client.start("Chain", chain(), slow_at_first(first, quick));
        start.id(id).await.unwrap();
    }
    let entries = || journal::read(&program.journal);
    let mut frozen = program.start("frozen");
    until_true("both run", || entries().len() >= 2).await;
    frozen.freeze();
    let _other = program.start("other");
    let mut records = Vec::new();
    for id in ["short", "long"] {
        let completed = |record: &MilestoneRecord| record.state == Status::Completed;
        records.push(until(&client, &id.into(), completed).await);
    }
    frozen.thaw();
    let told = |entries: &[Entry], id: &str, what| {
        let mut own = entries.iter().filter(|entry| entry.milestone == id);
        own.any(|entry| entry.attempt == 1 && entry.action == "fetch" && entry.what == what)
    };
    until_true("the short one ends", || {
        told(&entries(), "short", What::Ended) || told(&entries(), "short", What::Cancelled)
    })
    .await;
    until_true("the long one is asked to stop", || {
        told(&entries(), "long", What::Cancelled)
    })
    .await;
    // Time for it to say what it must not.
    tokio::time::sleep(LEASE).await;
    let entries = by_milestone(entries());
    for record in records {
        let after = client.get(record.id.clone()).await.unwrap().unwrap();
        assert_eq!(after, record, "it is as the other one left it");
        let of_first = attempts(&record, "fetch")[1];
        assert_eq!(
            (of_first.number, of_first.kind),
            (1, Some(AttemptKind::Abandoned))
        );
        assert_eq!((of_first.success, &of_first.error), (None, &None));
        assert!(of_first.worker.starts_with("frozen"));
        let problems = judge(&record, &entries[&record.id.to_string()], |_| 1);
        assert!(problems.is_empty(), "{problems:#?}");
    }
    assert!(!frozen.has_ended(), "it works on");
}

fn chain() -> Action {
    Action::new("fetch")
        .idempotent()
        .next([Action::new("store").idempotent()])
}
