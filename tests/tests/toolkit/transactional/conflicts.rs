//! Several transactions on the same documents, and two of one action.

use std::{sync::Arc, time::Duration};

use bson::{Bson, Document, doc};
use futures_util::future::join_all;
use milestone_runtime::{Method, core::record::Status, prelude::*};
use milestone_tests::{
    look::{action, attempts},
    payments::{self, all, audit, from_a_to_b, put, quick, take, transfer, witnesses},
};
use mongodb::{IndexModel, options::IndexOptions};
use tokio::sync::Mutex;

use super::{Runs, on_bench, pay_by};

#[test]
fn f29_150_at_once_on_the_same_10_documents() {
    on_bench(|bench| async move {
        let counters = bench.database().collection::<Document>("counters");
        let all_ten = (0..10).map(|id| doc! { "_id": id, "n": 0 });
        counters.insert_many(all_ten).await.unwrap();
        let runs = Runs::default();
        let counted = runs.clone();
        let count = Method::transactional("count", move |_, tx| {
            counted.next();
            Box::pin(async move {
                let counters = tx.collection::<Document>("counters");
                // In the same order, so that the first one decides who goes on.
                for id in 0..10 {
                    let more = counters.update_one(doc! { "_id": id }, doc! { "$inc": { "n": 1 } });
                    tx.run(more).await?;
                }
                Ok::<_, ActionError>(())
            })
        });
        let builder = bench.place.builder().concurrency(150);
        let runtime = bench.worker_of(builder, [count.options(quick())]).await;
        let starts = (0..150).map(|_| runtime.start("Count", "count", ()).into_future());
        let handles: Vec<_> = join_all(starts).await.into_iter().collect();
        let mut failed = 0;
        for handle in handles {
            let record = handle.unwrap().ended().await.unwrap();
            assert_eq!(record.state, Status::Completed, "{record:#?}");
            failed += attempts(&record, "count").len() - 1;
        }
        for counter in all(&bench.database(), "counters").await {
            assert_eq!(counter.get_i32("n").ok(), Some(150), "{counter}");
        }
        println!(
            "150 on the same 10 documents: {} runs of the body, {failed} attempts that failed",
            runs.count()
        );
        assert!(runs.count() > 150, "they got into each other's way");
    });
}

/// A document that is changed in between is an error that passes: the body is run again, in the same attempt, whatever it makes of the error.
#[test]
fn others_that_come_in_between_are_no_failure() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let accounts = bench.database().collection::<Document>("accounts");
        let pay = pay_by(&runs, move |call, tx, run| {
            let accounts = accounts.clone();
            Box::pin(async move {
                take(tx, "a", 5).await?;
                if run <= 2 {
                    let other = doc! { "$inc": { "others": 1 } };
                    accounts.update_one(doc! { "_id": "b" }, other).await?;
                }
                let paid = put(tx, call, &from_a_to_b(5)).await;
                // The first time it swallows the error.
                if run == 1 { Ok(0) } else { paid }
            })
        });
        let runtime = bench.worker([pay]).await;
        let record = bench.pays(&runtime, "t").await;
        bench.is_paid(&record).await;
        assert_eq!((runs.count(), attempts(&record, "pay").len()), (3, 1));
    });
}

/// F20: the application's own unique index. It is an error of the action as any other: it is neither taken for a witness nor run again.
#[test]
fn f20_a_duplicate_key_of_the_application_is_its_own_error() {
    on_bench(|bench| async move {
        let unique = IndexOptions::builder().unique(true).build();
        let index = IndexModel::builder()
            .keys(doc! { "number": 1 })
            .options(unique);
        let receipts = bench.database().collection::<Document>("receipts");
        receipts.create_index(index.build()).await.unwrap();
        receipts.insert_one(doc! { "number": 7 }).await.unwrap();
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, tx, _| {
            Box::pin(async move {
                transfer(call, tx).await?;
                let receipts = tx.collection::<Document>("receipts");
                let receipt = tx.run(receipts.insert_one(doc! { "number": 7 })).await;
                receipt.or_fail()?;
                Ok(1)
            })
        });
        let runtime = bench.worker([pay]).await;
        let record = bench.pays(&runtime, "t").await;
        assert_eq!(record.state, Status::Failed);
        let error = attempts(&record, "pay")[0].error.clone().unwrap();
        assert!(error.message.contains("E11000"), "{error:?}");
        assert_eq!(runs.count(), 1);
        bench.is_untouched().await;
    });
}

/// F20: another attempt was committed first, before this one began or while it ran. What that one gave is what the action gives.
#[test]
fn f20_a_witness_that_is_there_is_the_outcome() {
    on_bench(|bench| async move {
        for (id, first_run) in [("before", false), ("meanwhile", true)] {
            let client = bench.place.builder().client().build().await.unwrap();
            let handle = bench.start(&client, id, from_a_to_b(10)).await;
            let started = handle.record().await.unwrap().created_at;
            let what = format!("do {}", started.timestamp_millis());
            let key = doc! { "milestone": id, "action": "pay", "what": what };
            let witness = doc! { "_id": key, "output": 7_i64, "at": started };
            let witnesses = bench
                .database()
                .collection::<Document>("_milestones_.witnesses");
            if !first_run {
                witnesses.insert_one(&witness).await.unwrap();
            }
            let runs = Runs::default();
            let pay = pay_by(&runs, move |call, tx, _| {
                let (witnesses, witness) = (witnesses.clone(), witness.clone());
                Box::pin(async move {
                    if first_run {
                        witnesses.insert_one(witness).await?;
                    }
                    transfer(call, tx).await
                })
            });
            let runtime = bench.worker([pay]).await;
            let record = handle.ended().await.unwrap();
            assert_eq!(record.state, Status::Completed, "{id}: {record:#?}");
            assert_eq!(action(&record, "pay").output, Some(Bson::Int64(7)));
            assert_eq!(runs.count(), 1, "{id}");
            bench.is_untouched().await;
            runtime.shutdown().await;
        }
    });
}

/// A transaction of an earlier attempt, which nobody has ended, is committed while the body is run: before its second run, which then sees what
/// that has done and takes it for another's, or in its second run, which fails for a reason of its own. The action has what was committed.
#[test]
fn a_body_does_not_fail_by_its_own_effect() {
    on_bench(|bench| async move {
        // Not every server makes a collection inside of a transaction.
        let database = bench.database();
        let made = database.create_collection("_milestones_.witnesses");
        made.await.unwrap();
        for (id, committed_in) in [("before", 2), ("meanwhile", 3)] {
            let client = bench.place.builder().client().build().await.unwrap();
            let handle = bench.start(&client, id, from_a_to_b(10)).await;
            let started = handle.record().await.unwrap().created_at;
            let mut late = database.client().start_session().await.unwrap();
            late.start_transaction().await.unwrap();
            let accounts = database.collection::<Document>("accounts");
            let takes_all = doc! { "$set": { "balance": 0_i64 } };
            let taken = accounts.update_one(doc! { "_id": "a" }, takes_all);
            taken.session(&mut late).await.unwrap();
            let what = format!("do {}", started.timestamp_millis());
            let key = doc! { "milestone": id, "action": "pay", "what": what };
            let witness = doc! { "_id": key, "output": 7_i64, "at": started };
            let witnesses = database.collection::<Document>("_milestones_.witnesses");
            let inserted = witnesses.insert_one(witness).session(&mut late);
            inserted.await.unwrap();
            let late = Arc::new(Mutex::new(late));
            let runs = Runs::default();
            let pay = pay_by(&runs, move |_, tx, run| {
                let late = Arc::clone(&late);
                Box::pin(async move {
                    if run == 1 {
                        return Err(ActionError::new("the next attempt must look"));
                    }
                    let accounts = tx.collection::<Document>("accounts");
                    let enough = doc! { "_id": "a", "balance": { "$gte": 10_i64 } };
                    let found = tx.run(accounts.find_one(enough)).await?;
                    if found.is_none() {
                        return Err(ActionError::fatal("there is not enough money"));
                    }
                    let taken = if run == 2 {
                        take(tx, "a", 10).await
                    } else {
                        Err(ActionError::fatal("no"))
                    };
                    assert!(taken.is_err(), "the late one has touched it");
                    if run == committed_in {
                        late.lock().await.commit_transaction().await.unwrap();
                    }
                    taken.map(|()| 1)
                })
            });
            let runtime = bench.worker([pay]).await;
            let record = handle.ended().await.unwrap();
            assert_eq!(record.state, Status::Completed, "{id}: {record:#?}");
            assert_eq!(action(&record, "pay").output, Some(Bson::Int64(7)));
            assert_eq!(
                (runs.count(), attempts(&record, "pay").len()),
                (committed_in, 2)
            );
            assert!(all(&database, "ledger").await.is_empty(), "{id}");
            runtime.shutdown().await;
            let again = doc! { "$set": { "balance": payments::BEGINS_WITH } };
            accounts
                .update_one(doc! { "_id": "a" }, again)
                .await
                .unwrap();
        }
    });
}

/// The second milestone of an id is not taken for the first one, which is gone, though its witness is still there.
#[test]
fn an_id_that_is_used_again_is_another_milestone() {
    on_bench(|bench| async move {
        let runtime = bench.worker([payments::pay()]).await;
        let first = bench.pays(&runtime, "again").await;
        bench.is_paid(&first).await;
        runtime.remove("again").await.unwrap();
        let second = bench.pays(&runtime, "again").await;
        assert_eq!(second.state, Status::Completed);
        assert_eq!(payments::balances(&bench.database()).await["b"], 1_020);
        assert_eq!(witnesses(&bench.database()).await.len(), 2);
    });
}

/// The lease is renewed several times while the body runs.
#[test]
fn a_body_that_is_longer_than_several_renewals() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, tx, _| {
            Box::pin(async move {
                take(tx, "a", 10).await?;
                tokio::time::sleep(Duration::from_millis(2_500)).await;
                put(tx, call, &from_a_to_b(10)).await
            })
        });
        let builder = bench.place.builder().lease(Duration::from_millis(600));
        let runtime = bench.worker_of(builder, [pay]).await;
        let record = bench.pays(&runtime, "long").await;
        bench.is_paid(&record).await;
        assert_eq!((runs.count(), attempts(&record, "pay").len()), (1, 1));
        assert_eq!(audit(&bench.database()).await, 1);
    });
}
