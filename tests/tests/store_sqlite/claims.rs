//! The order of claims, and milestones whose time is over.

use milestone_runtime::store::{Filter, Store, WorkerInfo, sqlite::SqliteStore};

use crate::support::{claimed_ids, insert, later, record};

#[tokio::test]
async fn the_earliest_comes_first_to_the_last_one() {
    let store = SqliteStore::memory("m").expect("a store");
    store.open().await.expect("it opens");
    let now = store.now().await.expect("the time");
    for number in 0..50 {
        let place = number * 37 % 50;
        insert(
            &store,
            record(format!("m{place:02}"), later(now, i64::from(place) - 1_000)),
        )
        .await;
    }
    let mut ids = Vec::new();
    while ids.len() < 50 {
        let page = claimed_ids(&store, "w1", 3).await;
        assert!(!page.is_empty(), "more is due");
        ids.extend(page);
    }
    assert!(ids.is_sorted(), "{ids:?}");
}

#[tokio::test]
async fn of_those_that_are_due_together_the_higher_priority_comes_first() {
    let store = SqliteStore::memory("m").expect("a store");
    store.open().await.expect("it opens");
    let now = store.now().await.expect("the time");
    for (id, priority, millis) in [("low", -1, -3), ("a", 0, -2), ("b", 0, -1), ("high", 1, 0)] {
        let mut record = record(id, later(now, millis));
        record.priority = priority;
        insert(&store, record).await;
    }
    let mut ids = claimed_ids(&store, "w1", 2).await;
    ids.extend(claimed_ids(&store, "w1", 2).await);
    assert_eq!(ids, ["high", "a", "b", "low"]);
}

#[tokio::test]
async fn what_may_expire_goes_with_the_next_heartbeat() {
    let store = SqliteStore::memory("m").expect("a store");
    store.open().await.expect("it opens");
    let now = store.now().await.expect("the time");
    for (id, expire_at) in [
        ("gone", Some(later(now, -1))),
        ("later", Some(later(now, 60_000))),
        ("never", None),
    ] {
        let mut record = record(id, now);
        record.expire_at = expire_at;
        insert(&store, record).await;
    }
    let id = "w1".to_owned();
    let worker = WorkerInfo {
        name: id.clone(),
        id,
        methods: Vec::new(),
        queues: Vec::new(),
        since: now,
        seen_at: now,
        next_at: now,
    };
    store
        .heartbeat(worker)
        .await
        .expect("a heartbeat is answered");
    assert_eq!(store.count(Filter::new()).await.expect("a count"), 2);
    assert!(
        store
            .get(vec!["gone".into()])
            .await
            .expect("a read")
            .is_empty()
    );
}
