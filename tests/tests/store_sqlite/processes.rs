//! Several processes on one file, some of which are killed.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    time::Duration,
};

use milestone_runtime::store::{Committed, Filter, Store};

use crate::support::{as_child, child, claim, commit, end, insert, opened, record};

/// How many milestones the processes share.
const ALL: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn each_milestone_is_ended_by_one() {
    if let Some((path, owner)) = as_child() {
        let store = opened(&path).await;
        let mut empty = 0;
        while empty < 20 {
            let records = claim(&store, &owner, 4).await;
            if records.is_empty() {
                empty += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for record in records {
                if matches!(commit(&store, end(&record)).await, Committed::Done) {
                    println!("ended {}", record.id);
                }
            }
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let store = opened(&path).await;
    let now = store.now().await.expect("the time");
    for number in 0..ALL {
        insert(&store, record(format!("m{number}"), now)).await;
    }
    let test = "processes::each_milestone_is_ended_by_one";
    let processes: Vec<_> = (0..4)
        .map(|number| child(test, &path, &format!("w{number}")))
        .collect();
    let mut ended: BTreeMap<String, usize> = BTreeMap::new();
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).expect("text");
        for id in lines.lines().filter_map(|line| line.split_once("ended ")) {
            *ended.entry(id.1.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(ended.len(), ALL);
    assert!(ended.values().all(|count| *count == 1), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_after_a_kill() {
    if let Some((path, part)) = as_child() {
        let store = opened(&path).await;
        let now = store.now().await.expect("the time");
        for number in 0.. {
            insert(&store, record(format!("{part}-{number}"), now)).await;
            println!("stored {part}-{number}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let store = opened(&path).await;
    let mut all = 0;
    for round in 0..3 {
        let test = "processes::what_was_answered_is_there_after_a_kill";
        let mut process = child(test, &path, &format!("r{round}"));
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let mut ids = Vec::new();
        for line in output.lines().map(|line| line.expect("a line")) {
            if let Some((_, id)) = line.split_once("stored ") {
                ids.push(id.to_owned());
            }
            if ids.len() == 20 {
                process.kill().expect("it is killed");
            }
        }
        process.wait().expect("it ends");
        all += ids.len();
        let found = store
            .get(ids.iter().map(|id| id.as_str().into()).collect())
            .await
            .expect("a read");
        assert_eq!(found.len(), ids.len(), "of {ids:?}");
    }
    let count = store.count(Filter::new()).await.expect("a count");
    // One more of each may have been stored and not told.
    assert!(
        (all as u64..=all as u64 + 3).contains(&count),
        "{count} stored, {all} told"
    );
}
