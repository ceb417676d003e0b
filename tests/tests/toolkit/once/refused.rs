//! What cannot be written once, and where.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use milestone_runtime::{
    action::ActionError,
    mongo::{MOST_MARKERS, OnceError},
};
use milestone_tests::{
    own_server::OwnServer,
    place::{Kind, Place, run_async},
    transfer::until_clean,
};

use super::bench::{Bench, Runs, ann, less, only, run, start};

#[test]
fn what_cannot_be_applied_once_is_told_before_anything_is_sent() {
    run_async(async {
        let bench = Bench::new().await;
        let wrong = bench.action("wrong", |cx, accounts| async move {
            let once = || cx.once(&accounts);
            let errors = [
                once()
                    .update_one(doc! { "name": "ann" }, less(1))
                    .await
                    .unwrap_err(),
                once()
                    .update_one(doc! { "_id": { "$in": ["ann"] } }, less(1))
                    .await
                    .unwrap_err(),
                once()
                    .update_one(ann(), doc! { "balance": 7 })
                    .await
                    .unwrap_err(),
                once()
                    .update_one(ann(), doc! { "$unset": { "pendingMilestones": 1 } })
                    .await
                    .unwrap_err(),
                once()
                    .update_one(ann(), vec![doc! { "$replaceWith": { "a": 1 } }])
                    .await
                    .unwrap_err(),
                once()
                    .insert_one(doc! { "pendingMilestones": [] })
                    .await
                    .unwrap_err(),
                once()
                    .update_one(ann(), less(1))
                    .or_insert(doc! { "_id": "bob" })
                    .await
                    .unwrap_err(),
                once().undo().update_one(ann(), less(1)).await.unwrap_err(),
            ];
            assert!(errors.iter().all(OnceError::is_fatal));
            Ok(errors.map(|error| error.code()))
        });
        let runtime = bench.worker([wrong]).await;
        let codes = run(&runtime, "wrong").await.unwrap();
        let expected = [
            "once_filter",
            "once_filter",
            "once_change",
            "once_change",
            "once_change",
            "once_change",
            "once_change",
            "once_phase",
        ];
        assert_eq!(codes, Bson::from(expected.to_vec()));
        assert_eq!(
            bench.document("ann").await,
            Some(doc! { "_id": "ann", "balance": 100 })
        );
    });
}

#[test]
fn a_validator_is_told_what_to_allow() {
    run_async(async {
        let bench = Bench::new().await;
        let strict = |more: Document| {
            let mut properties = doc! { "_id": {}, "balance": {} };
            properties.extend(more);
            let schema =
                doc! { "$jsonSchema": { "additionalProperties": false, "properties": properties } };
            doc! { "collMod": "accounts", "validator": schema }
        };
        let database = bench.place.scratch().unwrap().database();
        database.run_command(strict(doc! {})).await.unwrap();
        let debit = bench.action("debit", |cx, accounts| async move {
            cx.once(&accounts)
                .update_one(ann(), less(1))
                .await
                .map_err(ActionError::fatal)?;
            Ok(())
        });
        let runtime = bench.worker([debit]).await;
        let error = run(&runtime, "debit").await.unwrap_err();
        let told = r#""pendingMilestones": { "bsonType": "array" }"#;
        assert!(error.to_string().contains(told), "{error}");
        let allowed = strict(doc! { "pendingMilestones": { "bsonType": "array" } });
        database.run_command(allowed).await.unwrap();
        run(&runtime, "debit").await.unwrap();
        until_clean(&bench.accounts).await;
        assert_eq!(bench.balance("ann").await, 99);
    });
}

#[test]
fn another_store_and_another_cluster_are_refused() {
    run_async(async {
        let bench = Bench::new().await;
        let server = OwnServer::start().await;
        let elsewhere = server
            .client()
            .await
            .database("bank")
            .collection::<Document>("accounts");
        elsewhere
            .insert_one(doc! { "_id": "ann", "balance": 100 })
            .await
            .unwrap();
        let there = elsewhere.clone();
        let debit = bench.action("debit", move |cx, _| {
            let accounts = there.clone();
            async move {
                cx.once(&accounts).update_one(ann(), less(1)).await?;
                Ok(())
            }
        });
        let runtime = bench.worker([debit.clone()]).await;
        let error = run(&runtime, "debit").await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("not in the cluster of the milestones"),
            "{error}"
        );
        let embedded = Place::new(Kind::Memory)
            .await
            .builder()
            .register(debit)
            .build()
            .await
            .unwrap();
        embedded.spawn();
        let error = run(&embedded, "debit").await.unwrap_err();
        assert!(error.to_string().contains("mongodb://"), "{error}");
        let found = elsewhere.find_one(ann()).await.unwrap();
        assert_eq!(found, Some(doc! { "_id": "ann", "balance": 100 }));
    });
}

/// A document that is written so often that its markers would be too many: the call waits, and then the action is retried.
#[test]
fn a_hot_document_has_so_many_markers_and_no_more() {
    run_async(async {
        let bench = Bench::new().await;
        let runs = Runs::default();
        let debit = bench.action("debit", move |cx, accounts| {
            let runs = runs.clone();
            async move {
                let written = cx.once(&accounts).update_one(ann(), less(1)).await;
                match written {
                    Err(error @ OnceError::Crowded { .. }) if runs.add() == 1 => {
                        Err(ActionError::fatal(error))
                    }
                    written => Ok(format!("{:?}", written?)),
                }
            }
        });
        // With an hour's skew nobody removes them.
        let runtime = bench
            .place
            .builder()
            .clock_skew(Duration::from_hours(1))
            .lease(Duration::from_secs(1))
            .register(debit)
            .build()
            .await
            .unwrap();
        runtime.spawn();
        let markers = (0..MOST_MARKERS).map(|n| {
            let (milestone, now) = (ObjectId::new(), DateTime::now());
            doc! { "milestone": milestone, "started": now, "action": format!("a{n}"), "label": "", "undone": false, "at": now }
        });
        let markers: Vec<Document> = markers.collect();
        let full = doc! { "$set": { "pendingMilestones": &markers } };
        bench.accounts.update_one(ann(), full).await.unwrap();
        let handle = start(&runtime, "debit").await;
        let error = handle.outcome().await.unwrap_err();
        assert!(error.to_string().contains("has 500 markers"), "{error}");
        assert_eq!(bench.balance("ann").await, 100);
        handle.retry().await.unwrap();
        let room = doc! { "$pop": { "pendingMilestones": -1 } };
        tokio::time::sleep(Duration::from_millis(300)).await;
        bench.accounts.update_one(ann(), room).await.unwrap();
        assert_eq!(only(handle.outcome().await.unwrap()).as_str(), Some("Now"));
        assert_eq!(bench.balance("ann").await, 99);
        // Those of milestones that are gone are removed by whoever sweeps.
        let sweeper = bench.worker([]).await;
        until_clean(&bench.accounts).await;
        drop(sweeper);
    });
}
