//! Writes whose fate is not known at once.

use std::sync::Arc;

use bson::{DateTime, doc};
use milestone_core::record::{Command, Order};
use milestone_runtime::store::{Committed, Insertion, RenewRequest, Sent, Store as _, StoreError};

use super::bench::{Bench, ends, sets};

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_done() {
    let (bench, proxy) = Bench::behind_proxy().await;
    let (keeps, gives_up) = (bench.held("keeps").await, bench.held("gives-up").await);
    proxy.lose_replies("update", 1);
    let batch = vec![sets(&keeps, "state", "running"), ends(&gives_up)];
    let told = bench.store.commit(batch).await.unwrap();
    assert!(
        matches!(told[..], [Committed::Done, Committed::Done]),
        "{told:?}"
    );
    assert_eq!(proxy.lost(), 1);
    assert_eq!(
        bench.document("keeps").await.get_str("state").unwrap(),
        "running"
    );
}

#[tokio::test]
async fn a_commit_that_never_arrives_is_unknown_and_done_when_it_is_made_again() {
    let bench = Bench::new().await;
    let record = bench.held("one").await;
    let commit = sets(&record, "state", "running");
    bench
        .scratch
        .fail(
            1,
            doc! { "failCommands": ["update"], "closeConnection": true },
        )
        .await;
    match bench.commit(&commit).await {
        Committed::Unknown(error) => assert!(
            matches!(*error, StoreError::Unreachable { .. }),
            "{error:?}"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        bench.document("one").await.get_i64("rev").unwrap(),
        record.rev
    );
    assert!(matches!(bench.commit(&commit).await, Committed::Done));
    assert!(
        matches!(bench.commit(&commit).await, Committed::Done),
        "it is done once"
    );
    assert_eq!(
        bench.document("one").await.get_i64("rev").unwrap(),
        record.rev + 1
    );
}

#[tokio::test]
async fn a_commit_of_which_nothing_can_be_read_is_unknown() {
    let (bench, proxy) = Bench::behind_proxy().await;
    let record = bench.held("one").await;
    let commit = sets(&record, "state", "running");
    proxy.lose_replies("update", 1);
    // The driver reads again once.
    proxy.lose_replies("find", 2);
    assert!(matches!(bench.commit(&commit).await, Committed::Unknown(_)));
    assert_eq!(proxy.lost(), 3);
    assert!(matches!(bench.commit(&commit).await, Committed::Done));
    assert_eq!(
        bench.document("one").await.get_i64("rev").unwrap(),
        record.rev + 1
    );
}

#[tokio::test]
async fn a_write_concern_error_is_settled_by_reading() {
    let bench = Bench::new().await;
    let record = bench.held("one").await;
    let error = doc! { "code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out" };
    bench
        .scratch
        .fail(
            1,
            doc! { "failCommands": ["update"], "writeConcernError": error },
        )
        .await;
    assert!(matches!(
        bench.commit(&ends(&record)).await,
        Committed::Done
    ));
    assert_eq!(
        bench.document("one").await.get_str("state").unwrap(),
        "completed"
    );
}

#[tokio::test]
async fn a_server_that_steps_down_leaves_it_unknown() {
    let bench = Bench::new().await;
    let record = bench.held("one").await;
    bench
        .scratch
        .fail(1, doc! { "failCommands": ["update"], "errorCode": 10107 })
        .await;
    let commit = sets(&record, "state", "running");
    assert!(matches!(bench.commit(&commit).await, Committed::Unknown(_)));
    assert!(matches!(bench.commit(&commit).await, Committed::Done));
}

#[tokio::test]
async fn a_client_without_rights_blames_no_patch() {
    let bench = Bench::new().await;
    let record = bench.held("one").await;
    bench
        .scratch
        .fail(1, doc! { "failCommands": ["update"], "errorCode": 13 })
        .await;
    assert!(matches!(
        bench.commit(&sets(&record, "state", "running")).await,
        Committed::Unknown(_)
    ));
}

#[tokio::test]
async fn a_command_refused_for_its_content_is_divided_until_the_guilty_one_is_found() {
    let bench = Bench::new().await;
    let mut batch = Vec::new();
    for number in 0..5 {
        batch.push(sets(
            &bench.held(&format!("m{number}")).await,
            "state",
            "running",
        ));
    }
    // Of the five, then of the first two, then of the first alone.
    bench
        .scratch
        .fail(3, doc! { "failCommands": ["update"], "errorCode": 10334 })
        .await;
    let told = bench.store.commit(batch).await.unwrap();
    assert!(
        matches!(
            told[..],
            [
                Committed::Refused(_),
                Committed::Done,
                Committed::Done,
                Committed::Done,
                Committed::Done
            ]
        ),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_gives_what_it_took() {
    let (bench, proxy) = Bench::behind_proxy().await;
    for id in ["a", "b"] {
        bench.insert(bench.record(id)).await;
    }
    proxy.lose_replies("update", 1);
    let claimed = bench.store.claim(bench.request()).await.unwrap();
    assert_eq!((claimed.records.len(), proxy.lost()), (2, 1));
    for record in claimed.records {
        let stored = bench
            .store
            .get(vec![record.id.clone()])
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(stored, record);
    }
}

#[tokio::test]
async fn a_claim_that_never_arrives_is_an_error_and_takes_nothing() {
    let bench = Bench::new().await;
    bench.insert(bench.record("a")).await;
    bench
        .scratch
        .fail(
            1,
            doc! { "failCommands": ["update"], "closeConnection": true },
        )
        .await;
    let error = bench.store.claim(bench.request()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert_eq!(
        bench
            .store
            .claim(bench.request())
            .await
            .unwrap()
            .records
            .len(),
        1
    );
}

#[tokio::test]
async fn an_insert_whose_reply_is_lost_is_an_error_or_settled() {
    let (bench, proxy) = Bench::behind_proxy().await;
    // The driver sends it again once, where the server has retryable writes, and then knows.
    proxy.lose_replies("insert", 1);
    let told = bench
        .store
        .insert(vec![Arc::new(bench.record("once"))])
        .await;
    assert!(
        matches!(
            told.as_deref(),
            Ok([Insertion::Inserted]) | Err(StoreError::Unreachable { .. })
        ),
        "{told:?}"
    );
    proxy.lose_replies("insert", 2);
    let error = bench
        .store
        .insert(vec![Arc::new(bench.record("twice"))])
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    let again = bench
        .store
        .insert(vec![Arc::new(bench.record("twice"))])
        .await
        .unwrap();
    assert!(
        matches!(&again[..], [Insertion::Exists(Ok(record))] if *record == bench.record("twice")),
        "{again:?}"
    );
}

#[tokio::test]
async fn an_insert_without_a_majority_is_an_error() {
    let bench = Bench::new().await;
    let error = doc! { "code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out" };
    bench
        .scratch
        .fail(
            1,
            doc! { "failCommands": ["insert"], "writeConcernError": error },
        )
        .await;
    let error = bench
        .store
        .insert(vec![Arc::new(bench.record("one"))])
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("waiting for replication timed out"),
        "{error}"
    );
}

#[tokio::test]
async fn f20_duplicates_are_recognised_in_every_shape() {
    let bench = Bench::new().await;
    bench.insert(bench.record("there")).await;
    let batch = || {
        vec![
            Arc::new(bench.record("new")),
            Arc::new(bench.record("there")),
            Arc::new(bench.record("new")),
        ]
    };
    // As an error of the command, which does not tell of which document. (Fail points give no 11000, which has more to tell.)
    bench
        .scratch
        .fail(1, doc! { "failCommands": ["insert"], "errorCode": 11001 })
        .await;
    for expected in ["Inserted", "Exists"] {
        let told = bench.store.insert(batch()).await.unwrap();
        let told: Vec<&str> = told
            .iter()
            .map(|told| match told {
                Insertion::Inserted => "Inserted",
                Insertion::Exists(Ok(_)) => "Exists",
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, [expected, "Exists", "Exists"]);
    }
    // Once for the one, though nothing is there: it is stored all the same.
    bench
        .scratch
        .fail(1, doc! { "failCommands": ["insert"], "errorCode": 11001 })
        .await;
    bench.insert(bench.record("later")).await;
}

#[tokio::test]
async fn a_renewal_whose_reply_is_lost_is_an_error_and_renews() {
    let (bench, proxy) = Bench::behind_proxy().await;
    bench.held("one").await;
    proxy.lose_replies("update", 1);
    let until = bench.at(30_000);
    let request = RenewRequest {
        owner: "w1".to_owned(),
        holds: vec![("one".into(), "t1".to_owned())],
        until,
    };
    let error = bench.store.renew(request.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert_eq!(
        bench
            .document("one")
            .await
            .get_document("lease")
            .unwrap()
            .get_datetime("until")
            .unwrap(),
        &until
    );
    let earlier = RenewRequest {
        until: bench.at(20_000),
        ..request
    };
    assert!(bench.store.renew(earlier).await.unwrap().lost.is_empty());
    assert_eq!(
        bench
            .document("one")
            .await
            .get_document("next")
            .unwrap()
            .get_datetime("at")
            .unwrap(),
        &until
    );
}

#[tokio::test]
async fn a_command_whose_reply_is_lost_is_delivered_once() {
    let (bench, proxy) = Bench::behind_proxy().await;
    bench.held("one").await;
    let order = Order::Pause {
        reason: "r".to_owned(),
    };
    let command = Command {
        id: "c1".to_owned(),
        order,
        by: "ann".to_owned(),
        at: DateTime::from_millis(1),
    };
    proxy.lose_replies("update", 2);
    let first = bench.store.send("one".into(), command.clone()).await;
    assert!(
        matches!(first, Err(StoreError::Unreachable { .. })),
        "{first:?}"
    );
    assert_eq!(
        bench.store.send("one".into(), command).await.unwrap(),
        Sent::Delivered
    );
    let document = bench.document("one").await;
    assert_eq!(
        (
            document.get_array("inbox").unwrap().len(),
            document.get_i64("mail").unwrap()
        ),
        (1, 1)
    );
}
