//! Markers go once they are of no more use, and not before.

use bson::doc;
use milestone_runtime::{Status, action::ActionError};
use milestone_tests::{
    place::run_async,
    transfer::{marked, markers, until_clean},
};

use super::bench::{Bench, Runs, ann, less, only, run, start, until};

/// A failed milestone may be retried by an operator, at any time: what its markers tell is kept in another place.
#[test]
fn a_retry_after_the_markers_have_gone_writes_nothing_twice() {
    run_async(async {
        let bench = Bench::new().await;
        let runs = Runs::default();
        let debit = bench.action("debit", move |cx, accounts| {
            let runs = runs.clone();
            async move {
                let written = cx.once(&accounts).update_one(ann(), less(30)).await?;
                let inserted = cx.once(&accounts).insert_one(doc! { "_id": "eve" }).await?;
                if runs.add() < 3 {
                    return Err(ActionError::fatal("what follows cannot be"));
                }
                Ok(format!("{written:?} {:?}", inserted.written))
            }
        });
        let runtime = bench.worker([debit]).await;
        let handle = start(&runtime, "debit").await;
        for _ in 0..2 {
            handle.outcome().await.unwrap_err();
            assert_eq!(handle.status().await.unwrap(), Status::Failed);
            until_clean(&bench.accounts).await;
            assert_eq!(bench.witnesses().await, 2);
            handle.retry().await.unwrap();
        }
        assert_eq!(
            only(handle.outcome().await.unwrap()).as_str(),
            Some("Before Before")
        );
        assert_eq!(bench.balance("ann").await, 70);
        assert_eq!(marked(&bench.accounts).await, 0);
        until("the witnesses are gone", || async {
            bench.witnesses().await == 0
        })
        .await;
    });
}

#[test]
fn a_milestone_that_is_removed_leaves_no_marker() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("debit", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(30)).await?;
            Ok(())
        });
        let runtime = bench.worker([debit]).await;
        let handle = start(&runtime, "debit").await;
        handle.outcome().await.unwrap();
        assert!(runtime.remove(handle.id().clone()).await.unwrap());
        assert_eq!(markers(&bench.accounts, "ann").await.len(), 1);
        until_clean(&bench.accounts).await;
    });
}

/// A document that its validator would not take any more keeps its marker, and others theirs go.
#[test]
fn a_marker_that_cannot_be_removed_keeps_no_other_one() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("debit", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(30)).await?;
            cx.once(&accounts)
                .update_one(doc! { "_id": "bob" }, less(30))
                .await?;
            Ok(())
        });
        let runtime = bench.worker([debit]).await;
        run(&runtime, "debit").await.unwrap();
        let database = bench.place.scratch().unwrap().database();
        let validator = |condition| doc! { "collMod": "accounts", "validator": condition };
        let no_ann = validator(doc! { "_id": { "$ne": "ann" } });
        database.run_command(no_ann).await.unwrap();
        until("the other one is clean", || async {
            marked(&bench.accounts).await == 1
        })
        .await;
        assert_eq!(markers(&bench.accounts, "ann").await.len(), 1);
        database.run_command(validator(doc! {})).await.unwrap();
        until_clean(&bench.accounts).await;
    });
}

/// While an action may run again its marker stays, however old it is.
#[test]
fn a_marker_stays_while_its_action_runs() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("debit", |cx, accounts| async move {
            let written = cx.once(&accounts).update_one(ann(), less(30)).await?;
            if cx.attempt() == 1 {
                tokio::time::sleep(6 * milestone_tests::transfer::SKEW).await;
                return Err(ActionError::new("again"));
            }
            Ok(format!("{written:?}"))
        });
        let runtime = bench.worker([debit]).await;
        // It sweeps, and has to know that the marker is needed.
        let _other = bench.worker([]).await;
        let handle = start(&runtime, "debit").await;
        assert_eq!(
            only(handle.outcome().await.unwrap()).as_str(),
            Some("Before")
        );
        assert_eq!(bench.balance("ann").await, 70);
        until_clean(&bench.accounts).await;
    });
}
