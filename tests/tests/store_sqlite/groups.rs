//! Writes that share a transaction.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use milestone_runtime::store::{Committed, Insertion, Store, StoreError};
use rusqlite::Connection;

use crate::support::{claim, commit, end, message, opened, record};

/// How many transactions are in the write-ahead log: a frame that ends one says how large the database then is.
fn transactions(path: &Path) -> usize {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = std::fs::read(log).expect("the log");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let page = usize::try_from(number(8)).expect("a size");
    let salt = number(16);
    let frames = (32..bytes.len()).step_by(24 + page);
    frames
        .filter(|frame| number(frame + 8) == salt && number(frame + 4) > 0)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_wait_go_to_the_disk_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let store = Arc::new(opened(&path).await);
    let now = store.now().await.expect("the time");
    let before = transactions(&path);
    let other = Connection::open(&path).expect("a connection");
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody else writes");
    let asked = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            let (store, asked) = (Arc::clone(&store), Arc::clone(&asked));
            // Every eighth one is there already.
            let record = Arc::new(record(format!("m{}", number - number % 8 / 7), now));
            tokio::spawn(async move {
                asked.fetch_add(1, Ordering::SeqCst);
                store
                    .insert(vec![record])
                    .await
                    .expect("an insert is answered")
                    .remove(0)
            })
        })
        .collect();
    while asked.load(Ordering::SeqCst) < 64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        tasks.iter().all(|task| !task.is_finished()),
        "none is answered before it is on the disk"
    );
    other.execute_batch("ROLLBACK").expect("others may write");
    let mut inserted = 0;
    for task in tasks {
        match task.await.expect("the task ends") {
            Insertion::Inserted => inserted += 1,
            Insertion::Exists(record) => assert!(record.is_ok()),
            Insertion::Refused(error) => panic!("{error}"),
        }
    }
    assert_eq!(inserted, 56);
    let count = transactions(&path) - before;
    assert!(
        count <= 3,
        "64 writes that wait need few transactions, not {count}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_at_once_are_each_answered_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let store = Arc::new(opened(&path).await);
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let now = store.now().await.expect("the time");
                for round in 0..5 {
                    let one = Arc::new(record(format!("m{task}-{round}"), now));
                    let shared = Arc::new(record(format!("shared-{round}"), now));
                    let told = store
                        .insert(vec![one, shared])
                        .await
                        .expect("an insert is answered");
                    assert!(
                        matches!(
                            told[..],
                            [
                                Insertion::Inserted,
                                Insertion::Inserted | Insertion::Exists(Ok(_))
                            ]
                        ),
                        "{told:?}"
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends");
    }
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut ended = Vec::new();
                loop {
                    let records = claim(&store, &format!("w{task}"), 3).await;
                    if records.is_empty() {
                        return ended;
                    }
                    for record in records {
                        assert!(matches!(
                            commit(&store, end(&record)).await,
                            Committed::Done
                        ));
                        assert!(
                            matches!(commit(&store, end(&record)).await, Committed::Done),
                            "again"
                        );
                        ended.push(record.id);
                    }
                }
            })
        })
        .collect();
    let mut ended = Vec::new();
    for task in tasks {
        ended.extend(task.await.expect("the task ends"));
    }
    assert_eq!(ended.len(), 64 * 5 + 5);
    let found = store.get(ended).await.expect("a read");
    for record in found {
        let record = record.expect("it can be read");
        assert_eq!(
            (record.rev, record.epoch, record.state.as_str()),
            (3, 1, "completed"),
            "{}",
            record.id
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_held_too_long_is_an_outage_that_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let store = opened(&path).await;
    let now = store.now().await.expect("the time");
    let other = Connection::open(&path).expect("a connection");
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody else writes");
    let error = store
        .insert(vec![record("a", now).into()])
        .await
        .expect_err("nobody can write");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(message(&error, &path).contains("another process keeps it locked"));
    assert!(
        store
            .get(vec!["a".into()])
            .await
            .expect("reading goes on")
            .is_empty()
    );
    other.execute_batch("ROLLBACK").expect("others may write");
    let told = store
        .insert(vec![record("a", now).into()])
        .await
        .expect("an insert is answered");
    assert!(matches!(told[..], [Insertion::Inserted]), "{told:?}");
}
