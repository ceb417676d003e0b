//! Who is dead loses what it held at once, and nobody else does.

use std::{
    io::{BufRead, BufReader},
    path::Path,
};

use milestone_runtime::store::{Committed, RenewRequest, Store};

use crate::support::{
    LEASE, as_child, child, claimed_ids, commit, end, held, insert, later, opened,
};

fn lock_files(path: &Path) -> Vec<String> {
    let mut folder = path.as_os_str().to_owned();
    folder.push("-workers");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_held_is_taken_at_once() {
    if let Some((path, owner)) = as_child() {
        // Takes what is due, is born with one more, says so, and waits to be killed.
        let store = opened(&path).await;
        let now = store.now().await.expect("the time");
        let claimed = claimed_ids(&store, &owner, 10).await;
        insert(&store, held(format!("born-of-{owner}"), now, &owner)).await;
        println!("holds {}", claimed.len() + 1);
        std::future::pending::<()>().await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a bank.db");
    let store = opened(&path).await;
    let now = store.now().await.expect("the time");
    for id in ["a", "b"] {
        insert(&store, crate::support::record(id, now)).await;
    }
    let test = "liveness::what_a_killed_process_held_is_taken_at_once";
    let mut process = child(test, &path, "host/1: the worker");
    let output = BufReader::new(process.stdout.take().expect("its output"));
    let mut lines = output.lines().map(|line| line.expect("a line"));
    let line = lines
        .find(|line| line.contains("holds "))
        .expect("it tells what it holds");
    assert!(line.ends_with("holds 3"), "{line}");
    assert_eq!(claimed_ids(&store, "w2", 10).await, [""; 0], "it lives");
    process.kill().expect("it is killed");
    process.wait().expect("it ends");
    let mut ids = claimed_ids(&store, "w2", 10).await;
    ids.sort();
    assert_eq!(ids, ["a", "b", "born-of-host/1: the worker"]);
    assert_eq!(
        lock_files(&path),
        ["w2.lock"],
        "what the dead leave is removed"
    );
}

#[tokio::test]
async fn what_a_dropped_store_held_is_taken_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let (first, second) = (opened(&path).await, opened(&path).await);
    let now = first.now().await.expect("the time");
    insert(&first, held("a", now, "w1")).await;
    insert(&second, held("b", now, "w2")).await;
    assert_eq!(claimed_ids(&second, "w3", 10).await, [""; 0]);
    drop(first);
    assert_eq!(claimed_ids(&second, "w3", 10).await, ["a"]);
}

#[tokio::test]
async fn two_stores_of_one_worker_are_one_life() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let (first, second, other) = (
        opened(&path).await,
        opened(&path).await,
        opened(&path).await,
    );
    let now = first.now().await.expect("the time");
    insert(&first, held("a", now, "w1")).await;
    insert(&second, held("b", now, "w1")).await;
    drop(first);
    assert_eq!(
        claimed_ids(&other, "w2", 10).await,
        [""; 0],
        "the worker lives on"
    );
    drop(second);
    assert_eq!(claimed_ids(&other, "w2", 10).await, ["a", "b"]);
}

#[tokio::test]
async fn a_worker_that_renews_lives_and_one_that_retires_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let (first, second) = (opened(&path).await, opened(&path).await);
    let now = first.now().await.expect("the time");
    let one = held("a", now, "w1");
    insert(&first, one.clone()).await;
    first.retire("w1".to_owned()).await.expect("it retires");
    assert_eq!(lock_files(&path), [""; 0]);
    let holds = vec![("a".into(), "token-of-w1".to_owned())];
    let request = RenewRequest {
        owner: "w1".to_owned(),
        holds,
        until: later(now, 2 * LEASE),
    };
    assert!(
        first
            .renew(request)
            .await
            .expect("a renewal")
            .lost
            .is_empty()
    );
    assert_eq!(claimed_ids(&second, "w2", 10).await, [""; 0]);
    first.retire("w1".to_owned()).await.expect("it retires");
    assert_eq!(claimed_ids(&second, "w2", 10).await, ["a"]);
    assert!(matches!(commit(&first, end(&one)).await, Committed::Lost));
}

#[tokio::test]
async fn locks_without_a_worker_are_swept_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let first = opened(&path).await;
    let now = first.now().await.expect("the time");
    insert(&first, held("a", now, "w1")).await;
    let stale = folder.path().join("bank.db-workers").join("w0.lock");
    std::fs::write(&stale, "").expect("a file");
    drop(opened(&path).await);
    assert_eq!(lock_files(&path), ["w1.lock"]);
}

/// Workers come over different names of one file, and must see each other all the same.
#[cfg(unix)]
#[tokio::test]
async fn through_a_link_the_same_lives_are_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let first = opened(&path).await;
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    let link = elsewhere.join("link.db");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let second = opened(&link).await;
    let now = first.now().await.expect("the time");
    insert(&first, held("a", now, "w1")).await;
    insert(&second, held("b", now, "w2")).await;
    assert_eq!(claimed_ids(&second, "w3", 10).await, [""; 0]);
    assert_eq!(claimed_ids(&first, "w4", 10).await, [""; 0]);
    drop(first);
    assert_eq!(claimed_ids(&second, "w3", 10).await, ["a"]);
}
