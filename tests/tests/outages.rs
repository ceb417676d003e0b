//! Servers that are away or fail, and documents that cannot be read. Each test has a MongoDB server of its own, since it stops it or
//! makes it fail.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::time::{Duration, Instant};

use bson::{Document, doc};
use milestone_runtime::{
    OutcomeError, Runtime, RuntimeBuilder, StartError,
    core::record::Status,
    store::{Filter, Page},
};
use milestone_tests::{
    ledger::Ledger,
    logs,
    look::until_true,
    own_server::OwnServer,
    place::{bare, mongodb_uri, run_async},
};

fn builder(server: &OwnServer) -> RuntimeBuilder {
    bare(mongodb_uri(&server.uri(), "subject"))
}

#[test]
fn an_unreachable_server_is_an_error_that_names_it() {
    run_async(async {
        let mut server = OwnServer::start().await;
        server.kill();
        let began = Instant::now();
        let error = builder(&server).build().await.unwrap_err();
        // The URI says 300 ms.
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(error.code(), "store_unreachable");
        let host = server.uri()["mongodb://".len()..]
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        assert!(error.to_string().contains(&host), "{error}");
    });
}

#[test]
fn s22_a_robot_that_was_connected_keeps_trying() {
    run_async(async {
        let mut server = OwnServer::start().await;
        let ledger = Ledger::new();
        let runtime = builder(&server)
            .register(ledger.gives("a", 1))
            .build()
            .await
            .unwrap();
        runtime.spawn();
        runtime
            .start("a", "a", ())
            .await
            .unwrap()
            .outcome()
            .await
            .unwrap();
        server.kill();
        let start = tokio::spawn(runtime.start("a", "a", ()).into_future());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!start.is_finished(), "it waits for the server");
        server.start_again().await;
        start.await.unwrap().unwrap().outcome().await.unwrap();
        assert_eq!(ledger.count("a"), 2);
        assert_eq!(
            runtime
                .count(Filter::new().state(Status::Completed))
                .await
                .unwrap(),
            2
        );
    });
}

#[test]
fn s27_not_stored_since_the_server_is_away() {
    run_async(async {
        let mut server = OwnServer::start().await;
        let runtime = builder(&server)
            .start_timeout(Duration::from_secs(3))
            .build()
            .await
            .unwrap();
        server.kill();
        let began = Instant::now();
        let error = runtime.start("a", "a", ()).id("one").await.unwrap_err();
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{:?}",
            began.elapsed()
        );
        let StartError::NotStored { id, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(id.to_string(), "one");
        server.start_again().await;
        assert!(runtime.get("one").await.unwrap().is_none());
        runtime.start("a", "a", ()).id("one").await.unwrap();
    });
}

#[test]
fn s27_a_lost_connection_stores_once() {
    run_async(async {
        let server = OwnServer::start().await;
        let ledger = Ledger::new();
        let runtime = builder(&server)
            .register(ledger.gives("a", 1))
            .build()
            .await
            .unwrap();
        runtime.spawn();
        for command in ["insert", "update"] {
            let data = doc! { "failCommands": [command], "closeConnection": true };
            server.fail("subject", doc! { "times": 3 }, data).await;
            let handle = runtime.start("a", "a", ()).id(command).await.unwrap();
            handle.outcome().await.unwrap();
            // The driver may not have found the server again within the 300 ms of the URI.
            let record = loop {
                match handle.record().await {
                    Ok(record) => break record,
                    Err(OutcomeError::Store(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            };
            assert_eq!(record.report.len(), 1);
        }
        assert_eq!(ledger.count("a"), 2);
        assert_eq!(runtime.count(Filter::new()).await.unwrap(), 2);
    });
}

#[test]
fn s22_failed_commands_stop_nothing() {
    run_async(async {
        let server = OwnServer::start().await;
        let ledger = Ledger::new();
        let runtime = builder(&server)
            .register(ledger.gives("a", 1))
            .build()
            .await
            .unwrap();
        runtime.spawn();
        // An unknown error, "not primary", and a shutdown.
        for code in [8, 10107, 91] {
            let commands = [
                "find",
                "aggregate",
                "update",
                "insert",
                "findAndModify",
                "bulkWrite",
            ];
            let data = doc! { "failCommands": commands, "errorCode": code };
            server.fail("subject", doc! { "times": 5 }, data).await;
            let handle = runtime.start("a", "a", ()).await.unwrap();
            handle.outcome().await.unwrap();
        }
        assert_eq!(ledger.count("a"), 3);
    });
}

/// A document that no version of this library has written.
async fn plant(server: &OwnServer, id: &str) -> Document {
    let client = server.client().await;
    let collection = client
        .database("subject")
        .collection::<Document>("_milestones_");
    let document = doc! {
        "_id": id,
        "type": 7,
        "state": "pending",
        "due": [{ "queue": "default", "at": bson::DateTime::from_millis(0), "method": "a" }],
        "next": { "queue": "default", "at": bson::DateTime::from_millis(0) },
    };
    collection.insert_one(document.clone()).await.unwrap();
    document
}

#[test]
fn an_undecodable_document_is_named_once_and_left_as_it_is() {
    logs::collect();
    run_async(async {
        let server = OwnServer::start().await;
        let ledger = Ledger::new();
        let runtime: Runtime = builder(&server)
            .register(ledger.gives("a", 1))
            .build()
            .await
            .unwrap();
        let planted = plant(&server, "the-odd-one").await;
        runtime.spawn();
        for _ in 0..3 {
            runtime
                .start("a", "a", ())
                .await
                .unwrap()
                .outcome()
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        until_true("it is named", || {
            !logs::lines_with("the-odd-one").is_empty()
        })
        .await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let lines = logs::lines_with("the-odd-one");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("ERROR"), "{lines:?}");

        let client = server.client().await;
        let collection = client
            .database("subject")
            .collection::<Document>("_milestones_");
        let found = collection
            .find_one(doc! { "_id": "the-odd-one" })
            .await
            .unwrap();
        assert_eq!(found, Some(planted));
        assert_eq!(
            runtime.get("the-odd-one").await.unwrap_err().code(),
            "unreadable"
        );
        let handle = runtime.start("a", "a", ()).id("the-odd-one").await;
        assert_eq!(handle.unwrap_err().code(), "unreadable");
        let listed = runtime.list(Filter::new(), Page::default()).await.unwrap();
        assert_eq!((listed.records.len(), listed.unreadable.len()), (3, 1));
    });
}
