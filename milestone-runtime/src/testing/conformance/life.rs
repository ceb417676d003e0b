//! Opening, reading, removing, hints, workers.

use std::time::Duration;

use bson::oid::ObjectId;
use futures_util::StreamExt;
use milestone_core::record::MilestoneId;

use super::bench::{Bench, commit, end, eventually};
use crate::store::{Committed, Filter, Wanted, WorkerInfo};

pub(super) async fn opened_twice_keeps_all(bench: Bench) {
    let record = bench.held("one", "w1", "t1").await;
    for _ in 0..2 {
        let info = bench.store.open().await.expect("it opens again");
        assert!(!info.description.is_empty());
        assert!(info.now >= bench.now);
    }
    let second = bench.subject.store().await;
    second.open().await.expect("it opens beside");
    assert_eq!(bench.get("one").await, record);
}

pub(super) async fn a_second_handle_sees_the_same(bench: Bench) {
    let second = bench.subject.store().await;
    let record = bench.held("one", "w1", "t1").await;
    let read = || async {
        second
            .get(vec!["one".into()])
            .await
            .expect("a read is answered")
    };
    assert_eq!(read().await, [Ok(record.clone())]);
    let told = second
        .commit(vec![commit(&record, end(0))])
        .await
        .expect("a commit is answered");
    assert!(matches!(told[..], [Committed::Done]), "{told:?}");
    assert_eq!(read().await, [Ok(bench.get("one").await)]);
    assert!(bench.get("one").await.lease.is_none());
}

pub(super) async fn removed_is_gone(bench: Bench) {
    let id = MilestoneId::from(ObjectId::new());
    bench
        .insert(vec![bench.record(id.clone()), bench.record("other")])
        .await;
    let remove =
        |id: MilestoneId| async { bench.store.remove(id).await.expect("a removal is answered") };
    assert!(remove(id.clone()).await);
    assert!(!remove(id.clone()).await, "it is gone");
    assert!(!remove("unknown".into()).await);
    assert!(
        bench
            .store
            .get(vec![id.clone()])
            .await
            .expect("a read is answered")
            .is_empty()
    );
    assert_eq!(
        bench
            .store
            .count(Filter::new())
            .await
            .expect("a count is answered"),
        1
    );
    assert_eq!(bench.claimed_ids(&bench.request("w1", 5)).await, ["other"]);
    bench.insert(vec![bench.record(id)]).await;
}

pub(super) async fn time_goes_on(bench: Bench) {
    let mut last = bench.now;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = bench.store.now().await.expect("the store tells the time");
        assert!(now >= last, "{now} comes after {last}");
        last = now;
    }
    let passed = last.timestamp_millis() - bench.now.timestamp_millis();
    assert!((20..60_000).contains(&passed), "{passed} ms have passed");
}

pub(super) async fn hints_come(bench: Bench) {
    let second = bench.subject.store().await;
    let Some(mut hints) = bench
        .store
        .changes(Wanted::ALL)
        .await
        .expect("changes are answered")
    else {
        return;
    };
    // Hints may be lost, so the change is made until one comes.
    let told = tokio::time::timeout(Duration::from_secs(20), hints.next());
    let change = async {
        for number in 0..100 {
            let record = bench.record(format!("m{number}"));
            second
                .insert(vec![record.into()])
                .await
                .expect("an insert is answered");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        told = told => assert!(told.expect("a hint comes in time").is_some()),
        () = change => panic!("no hint has come"),
    }
}

pub(super) async fn workers_come_and_go(bench: Bench) {
    let worker = |id: &str, millis: i64| WorkerInfo {
        id: id.to_owned(),
        name: format!("host:{id}"),
        methods: vec!["work".to_owned(), "a.b".to_owned()],
        queues: vec!["default".to_owned()],
        since: bench.now,
        seen_at: bench.at(millis),
        next_at: bench.at(millis + 1_000),
    };
    let workers = || async {
        let mut workers = bench.store.workers().await.expect("the workers are told");
        workers.sort_by(|a, b| a.id.cmp(&b.id));
        workers
    };
    assert_eq!(workers().await, []);
    for (id, millis) in [("w1", 1), ("w2", 2), ("w1", 3)] {
        bench
            .store
            .heartbeat(worker(id, millis))
            .await
            .expect("a heartbeat is answered");
    }
    assert_eq!(workers().await, [worker("w1", 3), worker("w2", 2)]);
    for id in ["w1", "unknown", "w1"] {
        bench
            .store
            .retire(id.to_owned())
            .await
            .expect("a retirement is answered");
    }
    eventually("only w2 is left", || async {
        workers().await == [worker("w2", 2)]
    })
    .await;
    assert_eq!(
        bench
            .store
            .count(Filter::new())
            .await
            .expect("a count is answered"),
        0,
        "workers are no milestones"
    );
}

pub(super) async fn reads_what_exists(bench: Bench) {
    let ids: Vec<MilestoneId> = vec!["c".into(), ObjectId::new().into(), "a".into(), "b".into()];
    bench
        .insert(ids.iter().map(|id| bench.record(id.clone())).collect())
        .await;
    let mut asked = ids.clone();
    asked.insert(2, "unknown".into());
    let found = bench.store.get(asked).await.expect("a read is answered");
    let mut found: Vec<MilestoneId> = found
        .into_iter()
        .map(|record| record.expect("it can be read").id)
        .collect();
    found.sort();
    let mut expected = ids;
    expected.sort();
    assert_eq!(
        found, expected,
        "those that exist are given, the others left out"
    );
    assert!(
        bench
            .store
            .get(Vec::new())
            .await
            .expect("an empty read is answered")
            .is_empty()
    );
}
