//! A worker that is killed at each of its writes.

use std::{process::Stdio, time::Duration};

use bson::Document;
use futures_util::StreamExt as _;
use milestone_runtime::Status;
use milestone_tests::{
    place::{Kind, Place, run_async, run_within},
    transfer::{self, until_clean},
};
use tokio::process::Command;

/// More writes than a transfer needs.
const MOST: usize = 40;

/// S32: a transfer between two accounts in two phases, without transactions of several documents. Its worker is killed before and after each
/// of its writes, whether of the framework or of the application; another one ends what it has begun. Nothing is lost, nothing doubled, and
/// no marker stays.
#[test]
fn s32_a_transfer_that_is_killed_at_every_write() {
    run_within(Duration::from_mins(8), Kind::MongoDb, |_| async {
        killed_at_every_write("bob", Status::Completed, &[("ann", 70), ("bob", 130)]).await;
    });
}

/// S32: the same where the second account does not exist, so that the first write is taken back.
#[test]
fn s32_a_transfer_that_is_taken_back_is_killed_at_every_write() {
    run_within(Duration::from_mins(8), Kind::MongoDb, |_| async {
        killed_at_every_write("nobody", Status::Undone, &[("ann", 100), ("bob", 100)]).await;
    });
}

async fn killed_at_every_write(to: &str, end: Status, expected: &[(&str, i32)]) {
    for moment in ["before", "after"] {
        let runs =
            futures_util::stream::iter(1..=MOST).map(|at| killed(at, moment, to, end, expected));
        let mut runs = std::pin::pin!(runs.buffered(6));
        let mut kills = 0;
        while let Some(was_killed) = runs.next().await {
            // It has come to its end, so there is no later write to be killed at.
            if !was_killed {
                break;
            }
            kills += 1;
        }
        println!("to {to}: killed {moment} each of {kills} writes");
        assert!((8..MOST).contains(&kills), "{kills}");
    }
}

/// One run; whether the worker was killed.
async fn killed(at: usize, moment: &str, to: &str, end: Status, expected: &[(&str, i32)]) -> bool {
    let place = Place::new(Kind::MongoDb).await;
    let accounts = place
        .scratch()
        .unwrap()
        .database()
        .collection::<Document>("accounts");
    transfer::open(&accounts, &["ann", "bob"]).await;
    let uri = place.uri();
    let ended = Command::new(env!("CARGO_BIN_EXE_once_worker"))
        .args([&*uri, &uri, &at.to_string(), moment, "t-1", "ann", to, "30"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    let ended = ended.await.unwrap();
    let builder = transfer::builder(uri);
    let runtime = transfer::with_actions(builder, &accounts)
        .build()
        .await
        .unwrap();
    let robot = runtime.spawn();
    // It may have been killed before it was stored.
    let parameters = transfer::parameters("ann", to, 30);
    let start = runtime.start("transfer", transfer::graph(), parameters);
    let record = start.id("t-1").await.unwrap().ended().await.unwrap();
    assert_eq!(record.state, end, "killed {moment} write {at}: {record:#?}");
    let expected = || {
        expected
            .iter()
            .map(|(name, balance)| ((*name).to_owned(), *balance))
    };
    let balances = transfer::balances(&accounts).await;
    assert!(
        balances.iter().cloned().eq(expected()),
        "killed {moment} write {at}: {balances:?}"
    );
    until_clean(&accounts).await;
    let balances = transfer::balances(&accounts).await;
    assert!(
        balances.iter().cloned().eq(expected()),
        "killed {moment} write {at}: {balances:?}"
    );
    robot.shutdown().await;
    !ended.success()
}

/// The markers of a worker that is dead, of a milestone that is over: another one finds them.
#[test]
fn a_dead_workers_markers_are_swept_by_another_one() {
    run_async(async {
        let place = Place::new(Kind::MongoDb).await;
        let accounts = place
            .scratch()
            .unwrap()
            .database()
            .collection::<Document>("accounts");
        transfer::open(&accounts, &["ann", "bob"]).await;
        let uri = place.uri();
        // It ends with its milestone, before its markers may go.
        let ended = Command::new(env!("CARGO_BIN_EXE_once_worker"))
            .args([&*uri, &uri, "0", "after", "t-1", "ann", "bob", "30"])
            .status();
        assert!(ended.await.unwrap().success());
        assert_eq!(transfer::marked(&accounts).await, 2);
        let other = transfer::builder(uri).build().await.unwrap();
        other.spawn();
        until_clean(&accounts).await;
    });
}
