//! Commands of many statements, at the limits of the server.

use std::sync::Arc;

use bson::{Binary, Bson, doc, spec::BinarySubtype};
use milestone_core::record::{MilestoneId, MilestoneRecord};
use milestone_runtime::store::{Committed, Insertion, RenewRequest, Store as _, StoreError};

use super::bench::{Bench, milestones, sets};

fn bytes(mebibytes: usize) -> Bson {
    Bson::Binary(Binary {
        subtype: BinarySubtype::Generic,
        bytes: vec![7; mebibytes << 20],
    })
}

#[tokio::test]
async fn commits_of_any_size_in_all_are_divided() {
    let bench = Bench::new().await;
    let mut batch = Vec::new();
    for number in 0..9 {
        let record = bench.held(&format!("m{number}")).await;
        batch.push(sets(&record, "actions.0.output", bytes(6)));
    }
    let told = bench.store.commit(batch).await.unwrap();
    assert!(
        told.iter().all(|told| matches!(told, Committed::Done)),
        "{told:?}"
    );
    let stored = doc! { "actions.output": { "$type": "binData" } };
    assert_eq!(
        milestones(&bench.scratch)
            .count_documents(stored)
            .await
            .unwrap(),
        9
    );
}

#[tokio::test]
async fn a_document_that_grows_too_large_is_refused_alone() {
    let bench = Bench::new().await;
    let (mut large, small) = (bench.held("large").await, bench.held("small").await);
    assert!(matches!(
        bench
            .commit(&sets(&large, "actions.0.output", bytes(9)))
            .await,
        Committed::Done
    ));
    large.rev += 1;
    let batch = vec![
        sets(&large, "actions.1.output", bytes(9)),
        sets(&small, "state", "running"),
    ];
    let told = bench.store.commit(batch).await.unwrap();
    match &told[..] {
        [Committed::Refused(error), Committed::Done] => {
            assert!(matches!(**error, StoreError::Refused { .. }), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        bench.commit(&sets(&large, "state", "running")).await,
        Committed::Done
    ));
}

#[tokio::test]
async fn inserts_of_any_size_in_all_are_divided_and_told_in_order() {
    let bench = Bench::new().await;
    let record = |id: String, mebibytes| MilestoneRecord {
        parameters: bytes(mebibytes),
        ..bench.record(&id)
    };
    bench.insert(bench.record("m7")).await;
    let mut batch: Vec<_> = (0..9)
        .map(|number| Arc::new(record(format!("m{number}"), 7)))
        .collect();
    batch.insert(3, Arc::new(record("large".to_owned(), 17)));
    let told = bench.store.insert(batch).await.unwrap();
    let told: Vec<&str> = told
        .iter()
        .map(|told| match told {
            Insertion::Inserted => "inserted",
            Insertion::Exists(Ok(record)) if record.id == "m7".into() => "exists",
            Insertion::Refused(_) => "refused",
            other @ Insertion::Exists(_) => panic!("{other:?}"),
        })
        .collect();
    let mut expected = ["inserted"; 10];
    (expected[3], expected[8]) = ("refused", "exists");
    assert_eq!(told, expected);
}

#[tokio::test]
async fn another_unique_index_refuses_and_is_named() {
    let bench = Bench::new().await;
    let options = mongodb::options::IndexOptions::builder()
        .unique(true)
        .name("one_amount".to_owned())
        .build();
    let index = mongodb::IndexModel::builder()
        .keys(doc! { "parameters.amount": 1 })
        .options(options)
        .build();
    milestones(&bench.scratch)
        .create_index(index)
        .await
        .unwrap();
    bench.insert(bench.record("first")).await;
    let told = bench
        .store
        .insert(vec![Arc::new(bench.record("second"))])
        .await
        .unwrap();
    match &told[..] {
        [Insertion::Refused(error)] => assert!(error.to_string().contains("one_amount"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_the_server_does_not_let_be_taken_is_named() {
    let bench = Bench::new().await;
    for id in ["good", "stuck"] {
        bench.insert(bench.record(id)).await;
    }
    let validator = doc! { "$nor": [{ "_id": "stuck", "lease": { "$exists": true } }] };
    let command = doc! { "collMod": milestones(&bench.scratch).name(), "validator": validator };
    bench.scratch.database().run_command(command).await.unwrap();
    let claimed = bench.store.claim(bench.request()).await.unwrap();
    assert_eq!(
        claimed
            .records
            .iter()
            .map(|record| record.id.to_string())
            .collect::<Vec<_>>(),
        ["good"]
    );
    assert_eq!(claimed.missed, 0);
    match &claimed.unreadable[..] {
        [(id, reason)] => {
            assert_eq!(*id, "stuck".into());
            assert!(
                reason
                    .to_string()
                    .contains("the database does not let it be changed: "),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// The lease ends when it was to end, and whoever holds it is told.
#[tokio::test]
async fn a_lease_that_the_server_does_not_let_be_renewed_is_named() {
    let bench = Bench::new().await;
    let mut holds = Vec::new();
    for id in ["good", "stuck", "well"] {
        bench.held(id).await;
        holds.push((MilestoneId::from(id), "t1".to_owned()));
    }
    let (before, until) = (bench.lease().until, bench.at(20_000));
    let validator = doc! { "$nor": [{ "_id": "stuck", "lease.until": { "$gt": before } }] };
    let command = doc! { "collMod": milestones(&bench.scratch).name(), "validator": validator };
    bench.scratch.database().run_command(command).await.unwrap();
    let owner = "w1".to_owned();
    let request = RenewRequest {
        owner,
        holds,
        until,
    };
    let renewed = bench.store.renew(request).await.unwrap();
    assert_eq!(renewed.unrenewed, ["stuck".into()]);
    assert!(renewed.lost.is_empty(), "{renewed:?}");
    for (id, expected) in [("good", until), ("stuck", before), ("well", until)] {
        let document = bench.document(id).await;
        let lease = document.get_document("lease").unwrap();
        assert_eq!(*lease.get_datetime("until").unwrap(), expected, "{id}");
    }
}
