//! `doctor`.

use bson::{Document, doc};
use milestone_runtime::{Status, dynamic::Action};
use milestone_tests::{ledger::Ledger, look::until, on_stores, place::Place};
use serde_json::Value;

use crate::tool::Tool;

on_stores!(sqlite, mongodb:
    a_collection_that_is_well,
    f42_what_is_wrong_is_named_and_counted,
    an_index_that_is_missing_is_told,
);

async fn a_collection_that_is_well(place: Place) {
    let builder = place.builder().register(Ledger::new().gives("pay", 1));
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    for _ in 0..3 {
        let handle = runtime.start("Job", Action::new("pay"), ()).await.unwrap();
        handle.outcome().await.unwrap();
    }
    let run = Tool::new(&place).run(&["doctor"]).await;
    run.expect(
        0,
        &["3 milestones looked at, 1 worker lives", "nothing is wrong"],
    );
    runtime.shutdown().await;
}

/// Changes a stored document by hand.
async fn tamper(place: &Place, id: &str, change: impl FnOnce(&mut Document)) {
    if let Some(scratch) = place.scratch() {
        let collection = scratch.database().collection::<Document>("_milestones_");
        let found = collection.find_one(doc! { "_id": id }).await.unwrap();
        let mut document = found.unwrap();
        change(&mut document);
        collection
            .replace_one(doc! { "_id": id }, document)
            .await
            .unwrap();
        return;
    }
    let uri = place.uri();
    let file = rusqlite::Connection::open(uri.strip_prefix("sqlite:").unwrap()).unwrap();
    let key = format!("s{id}");
    let sql = "SELECT doc FROM _milestones_ WHERE id = ?";
    let bytes: Vec<u8> = file.query_row(sql, [&key], |row| row.get(0)).unwrap();
    let mut document = Document::from_reader(&bytes[..]).unwrap();
    change(&mut document);
    let sql = "UPDATE _milestones_ SET doc = ? WHERE id = ?";
    assert_eq!(
        file.execute(sql, (document.to_vec().unwrap(), &key))
            .unwrap(),
        1
    );
}

/// F42: milestones that wait for a method that no live worker has are counted.
async fn f42_what_is_wrong_is_named_and_counted(place: Place) {
    let ledger = Ledger::new();
    let builder = place.builder().register(ledger.gives("pay", 1));
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    for id in ["well", "newer"] {
        let handle = runtime
            .start("Job", Action::new("pay"), ())
            .id(id)
            .await
            .unwrap();
        handle.outcome().await.unwrap();
    }
    for id in ["waits-1", "waits-2", "broken"] {
        let graph = Action::new("pay").next(["print"]);
        let handle = runtime.start("Job", graph, ()).id(id).await.unwrap();
        let free = |record: &milestone_runtime::MilestoneRecord| {
            record.state == Status::Running && record.lease.is_none()
        };
        until(&runtime, handle.id(), free).await;
    }
    tamper(&place, "newer", |document| {
        drop(document.insert("schema", 99));
    })
    .await;
    tamper(&place, "broken", |document| {
        document.remove("due");
        document.remove("next");
    })
    .await;
    let tool = Tool::new(&place);
    let run = tool.run(&["doctor"]).await;
    run.expect(
        6,
        &[
            "5 milestones looked at",
            "1 document cannot be read",
            "newer  its schema is 99",
            "1 invariant is broken",
            "broken  `print` can run, and nobody is told that it is due",
            "3 milestones wait for `print` in the queue `default`",
        ],
    );
    let run = tool.run(&["doctor", "--json"]).await;
    let found: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(run.code, 6);
    assert_eq!(found["unreadable"]["named"][0]["id"], "newer");
    assert_eq!(found["broken"]["named"][0]["id"], "broken");
    assert_eq!(found["withoutWorker"][0]["count"], 3);
    assert_eq!(found["well"], false);

    // Other commands bear what cannot be read.
    let run = tool.run(&["show", "newer"]).await;
    run.expect(1, &["the milestone newer cannot be read: its schema is 99"]);
    let run = tool.run(&["list"]).await;
    run.expect(1, &["well", "waits-1", "newer cannot be read"]);
    runtime.shutdown().await;
}

async fn an_index_that_is_missing_is_told(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    let index = if let Some(scratch) = place.scratch() {
        let collection = scratch.database().collection::<Document>("_milestones_");
        collection.drop_index("milestone_next").await.unwrap();
        "milestone_next"
    } else {
        let uri = place.uri();
        let file = rusqlite::Connection::open(uri.strip_prefix("sqlite:").unwrap()).unwrap();
        file.execute_batch("DROP INDEX \"_milestones_.next\"")
            .unwrap();
        "_milestones_.next"
    };
    let tool = Tool::new(&place);
    let run = tool.run(&["doctor"]).await;
    run.expect(6, &["what was missing in the database is made now", index]);
    tool.run(&["doctor"]).await.expect(0, &["nothing is wrong"]);
    client.shutdown().await;
}
