//! Markers go once they are of no more use, and not before.

use bson::{DateTime, Document, doc};
use milestone_runtime::{Status, action::ActionError, dynamic::Action, mongo::Undone};
use milestone_tests::{
    place::run_async,
    transfer::{marked, markers, until_clean},
};

use mongodb::{IndexModel, options::IndexOptions};

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

/// The undo of another action may take back what an action without an undo of its own has written, long after that has completed.
#[test]
fn a_marker_stays_while_another_action_can_be_undone() {
    run_async(async {
        let bench = Bench::new().await;
        let reserve = bench.action("reserve", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(30)).await?;
            Ok(())
        });
        let charge = bench.action("charge", |_, _| async {
            tokio::time::sleep(6 * milestone_tests::transfer::SKEW).await;
            Err::<(), _>(ActionError::fatal("the card is declined"))
        });
        let release = bench.action("release", |cx, accounts| async move {
            let reserved = cx.once(&accounts).undo_of("reserve");
            let undone = reserved.update_one(ann(), less(-30)).await?;
            assert_eq!(undone, Undone::Now);
            Ok(())
        });
        let runtime = bench.worker([reserve, charge, release]).await;
        let charge = Action::new("charge").undo("release");
        let graph = Action::new("reserve").next([charge]);
        let handle = runtime.start("Order", graph, ()).await.unwrap();
        let record = handle.ended().await.unwrap();
        assert_eq!(record.state, Status::Undone, "{record:#?}");
        assert_eq!(bench.balance("ann").await, 100);
        until_clean(&bench.accounts).await;
    });
}

/// A collection that cannot be swept, such as one whose index is gone, keeps nobody from others; nor do hundreds of markers that are needed.
#[test]
fn a_sweep_goes_on_behind_what_it_cannot_clean() {
    run_async(async {
        let bench = Bench::new().await;
        let database = bench.place.scratch().unwrap().database();
        let of = |milestone: &str| {
            let long_ago = DateTime::from_millis(1_000);
            let marker = doc! { "milestone": milestone, "started": long_ago, "action": "wait", "label": "", "undone": false };
            let again = doc! { "milestone": milestone, "started": long_ago, "action": "wait", "label": "again", "undone": false };
            [marker, again].map(|mut marker| {
                marker.insert("at", long_ago);
                marker
            })
        };
        let noted = database.collection::<Document>("_milestones_.marked");
        let name = database.name().to_owned();
        for collection in ["a-without-index", "accounts"] {
            let id = doc! { "database": &name, "collection": collection };
            noted.insert_one(doc! { "_id": id }).await.unwrap();
        }
        let index = IndexModel::builder().keys(doc! { "pendingMilestones.at": 1 });
        let options = IndexOptions::builder().name("milestone_pending".to_owned());
        let index = index.options(options.sparse(true).build()).build();
        bench.accounts.create_index(index).await.unwrap();

        let client = bench.builder().client().build().await.unwrap();
        let wait = Action::new("wait").idempotent();
        client.start("one", wait, ()).id("waits").await.unwrap();
        let needed = (0..600).map(|n| doc! { "_id": n, "pendingMilestones": of("waits").to_vec() });
        bench.accounts.insert_many(needed).await.unwrap();
        let over = doc! { "_id": "zoe", "pendingMilestones": of("was-removed").to_vec() };
        bench.accounts.insert_one(over).await.unwrap();

        let _worker = bench.worker([]).await;
        until("what is behind them is clean", || async {
            markers(&bench.accounts, "zoe").await.is_empty()
        })
        .await;
        assert_eq!(marked(&bench.accounts).await, 600);
    });
}
