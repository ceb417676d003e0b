//! Bodies that do what they should not, and outputs that cannot be stored.

use bson::{Document, doc};
use milestone_runtime::{
    action::RetryPolicy,
    core::{
        limits::Limits,
        record::{AttemptError, MilestoneRecord, Status},
    },
    prelude::*,
};
use milestone_tests::{
    look::attempts,
    payments::{self, audit, from_a_to_b, put, quick, take, transfer},
};

use mongodb::Collection;

use super::{Runs, on_bench, pay_by};

fn error(record: &MilestoneRecord) -> AttemptError {
    attempts(record, "pay")[0].error.clone().unwrap()
}

const TWICE: RetryPolicy = RetryPolicy::new()
    .max(2)
    .base(std::time::Duration::from_millis(10));

/// An operation by `tx.run` fails, for good, and the body goes on as if nothing were.
#[test]
fn f30_an_error_that_is_swallowed_is_not_committed() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, tx, _| {
            Box::pin(async move {
                let accounts = tx.collection::<Document>("accounts");
                // It is there already.
                let _swallowed = tx.run(accounts.insert_one(doc! { "_id": "a" })).await;
                let _swallowed = transfer(call, tx).await;
                Ok(1)
            })
        });
        let runtime = bench.worker([pay.options(quick().retry(TWICE))]).await;
        let record = bench.pays(&runtime, "t").await;
        assert_eq!(record.state, Status::Failed);
        let error = error(&record);
        assert!(
            error.message.contains("the body returned no error")
                && error.message.contains("E11000"),
            "{error:?}"
        );
        assert_eq!(runs.count(), 2, "one run for each attempt");
        bench.is_untouched().await;
    });
}

/// The same by the driver's session, of which the runtime sees nothing: the server has aborted the transaction by then.
#[test]
fn f30_an_error_of_the_session_that_is_swallowed() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |_, tx, _| {
            Box::pin(async move {
                let accounts = tx.collection::<Document>("accounts");
                let there = accounts.insert_one(doc! { "_id": "a" });
                let _swallowed = there.session(tx.session()).await;
                let take = doc! { "$inc": { "balance": -10_i64 } };
                let taken = accounts.update_one(doc! { "_id": "a" }, take);
                let _swallowed = taken.session(tx.session()).await;
                Ok(1)
            })
        });
        let runtime = bench.worker([pay.options(quick().retry(TWICE))]).await;
        let record = bench.pays(&runtime, "t").await;
        assert_eq!(record.state, Status::Failed);
        let error = error(&record);
        assert!(error.message.contains("`tx.note(&error)`"), "{error:?}");
        assert_eq!(runs.count(), 6, "three runs for each attempt");
        bench.is_untouched().await;
    });
}

/// The same, told by `tx.note`.
#[test]
fn f30_an_error_of_the_session_that_is_told() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |_, tx, _| {
            Box::pin(async move {
                let accounts = tx.collection::<Document>("accounts");
                let there = accounts.insert_one(doc! { "_id": "a" });
                if let Err(error) = there.session(tx.session()).await {
                    tx.note(&error);
                }
                Ok(1)
            })
        });
        let runtime = bench.worker([pay.options(quick().retry(TWICE))]).await;
        let record = bench.pays(&runtime, "t").await;
        let error = error(&record);
        assert!(
            error.message.contains("the body returned no error"),
            "{error:?}"
        );
        assert_eq!(runs.count(), 2);
    });
}

/// Others come in between an operation by the session, and the body returns its error: it is run again.
#[test]
fn an_error_of_the_session_that_passes_is_returned() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let others = bench.database().collection::<Document>("accounts");
        let pay = pay_by(&runs, move |call, tx, run| {
            let others = others.clone();
            Box::pin(async move {
                take(tx, "a", 10).await?;
                if run == 1 {
                    let other = doc! { "$inc": { "others": 1 } };
                    others.update_one(doc! { "_id": "b" }, other).await?;
                }
                let accounts = tx.collection::<Document>("accounts");
                let seen = doc! { "$inc": { "seen": 1 } };
                let seen = accounts.update_one(doc! { "_id": "b" }, seen);
                seen.session(tx.session()).await?;
                put(tx, call, &from_a_to_b(10)).await
            })
        });
        let runtime = bench.worker([pay]).await;
        let record = bench.pays(&runtime, "t").await;
        bench.is_paid(&record).await;
        assert_eq!((runs.count(), attempts(&record, "pay").len()), (2, 1));
    });
}

/// A body that commits by itself fails for good: it is neither committed again nor run again.
#[test]
fn f30_a_body_that_commits_by_itself() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, tx, _| {
            Box::pin(async move {
                let paid = transfer(call, tx).await;
                tx.session().commit_transaction().await?;
                paid
            })
        });
        let runtime = bench.worker([pay]).await;
        let record = bench.pays(&runtime, "t").await;
        assert_eq!(record.state, Status::Failed);
        let error = error(&record);
        assert!(error.message.contains("by itself"), "{error:?}");
        assert_eq!(runs.count(), 1);
        assert_eq!(audit(&bench.database()).await, 1, "it was committed once");
    });
}

#[test]
fn f30_a_body_that_aborts_by_itself() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, tx, run| {
            Box::pin(async move {
                let paid = transfer(call, tx).await;
                tx.session().abort_transaction().await?;
                // The first time it says why.
                if run == 1 {
                    return Err(ActionError::new("not today"));
                }
                paid
            })
        });
        let runtime = bench.worker([pay]).await;
        let record = bench.pays(&runtime, "t").await;
        assert_eq!(record.state, Status::Failed);
        let messages = attempts(&record, "pay")
            .into_iter()
            .map(|attempt| attempt.error.clone().unwrap().message);
        let messages: Vec<_> = messages.collect();
        assert!(messages[0].contains("by itself"), "{messages:?}");
        assert_eq!(messages[1..], ["not today".to_owned()]);
        assert_eq!(runs.count(), 2);
        bench.is_untouched().await;
    });
}

#[test]
fn an_error_or_a_panic_of_the_body_leaves_nothing() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, tx, run| {
            Box::pin(async move {
                let paid = transfer(call, tx).await?;
                assert_ne!(run, 1, "a panic, for the test");
                if run == 2 {
                    return Err(ActionError::new("an error"));
                }
                Ok(paid)
            })
        });
        let runtime = bench.worker([pay]).await;
        let record = bench.pays(&runtime, "t").await;
        bench.is_paid(&record).await;
        assert_eq!((runs.count(), attempts(&record, "pay").len()), (3, 3));
    });
}

/// Unlike with other actions, it is known before anything takes effect.
#[test]
fn an_output_that_cannot_be_stored_leaves_nothing() {
    on_bench(|bench| async move {
        let wide = Method::transactional("pay", |call, tx| {
            Box::pin(async move {
                transfer(call, tx).await?;
                Ok::<_, ActionError>(u64::MAX)
            })
        });
        let large = Method::transactional("pay", |call, tx| {
            Box::pin(async move {
                transfer(call, tx).await?;
                Ok::<_, ActionError>("x".repeat(2_000))
            })
        });
        for (id, method, part) in [
            ("wide", wide, "BSON cannot hold"),
            ("large", large, "output"),
        ] {
            let mut limits = Limits::new();
            limits.output = 1_000;
            let builder = bench.place.builder().limits(limits);
            let runtime = bench.worker_of(builder, [method]).await;
            let record = bench.pays(&runtime, id).await;
            assert_eq!(record.state, Status::Failed);
            let attempts = attempts(&record, "pay");
            let error = attempts[0].error.clone().unwrap();
            assert!(
                error.message.starts_with("nothing took effect") && error.message.contains(part),
                "{error:?}"
            );
            assert_eq!(attempts.len(), 1);
            bench.is_untouched().await;
            runtime.shutdown().await;
        }
    });
}

/// A collection of another client cannot be used: the error says which to use.
#[test]
fn a_collection_of_another_client() {
    on_bench(|bench| async move {
        let accounts = bench.database().collection::<Document>("accounts");
        let taken = |accounts: Collection<Document>| {
            pay_by(&Runs::default(), move |call, tx, _| {
                let accounts = accounts.clone();
                Box::pin(async move {
                    let take = doc! { "$inc": { "balance": -10_i64 } };
                    tx.run(accounts.update_one(doc! { "_id": "a" }, take))
                        .await?;
                    put(tx, call, &from_a_to_b(10)).await
                })
            })
        };
        let runtime = bench.worker([taken(accounts.clone())]).await;
        let record = bench.pays(&runtime, "others").await;
        let error = error(&record);
        assert!(
            error
                .chain
                .iter()
                .any(|text| text.contains(".mongo_client(..)")),
            "{error:?}"
        );
        assert_eq!(attempts(&record, "pay").len(), 1, "it never could succeed");
        runtime.shutdown().await;
        // With that client, it can.
        let builder = bench
            .place
            .builder()
            .mongo_client(bench.scratch().client().clone());
        let runtime = bench.worker_of(builder, [taken(accounts)]).await;
        let record = bench.pays(&runtime, "own").await;
        assert_eq!(record.state, Status::Completed, "{record:#?}");
        assert_eq!(payments::balances(&bench.database()).await["b"], 1_010);
    });
}

/// The first attempt is cut off after it has written.
#[test]
fn a_timeout_in_the_middle() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, tx, run| {
            Box::pin(async move {
                take(tx, "a", 10).await?;
                if run == 1 {
                    std::future::pending::<()>().await;
                }
                put(tx, call, &from_a_to_b(10)).await
            })
        });
        let timeout = std::time::Duration::from_secs(1);
        let runtime = bench.worker([pay.options(quick().timeout(timeout))]).await;
        let record = bench.pays(&runtime, "t").await;
        bench.is_paid(&record).await;
        assert_eq!((runs.count(), attempts(&record, "pay").len()), (2, 2));
    });
}

/// Its body may be run several times, so what it writes outside of the transaction would be there though that is not committed.
#[test]
fn a_write_once_beside_the_transaction_is_refused() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let pay = pay_by(&runs, |call, _, _| {
            let cx = call.context().clone();
            let accounts = call.extract::<State<Collection<Document>>>();
            Box::pin(async move {
                let more = doc! { "$inc": { "balance": 1_i64 } };
                let accounts = accounts?;
                cx.once(&accounts)
                    .update_one(doc! { "_id": "a" }, more)
                    .await?;
                Ok(1)
            })
        });
        let accounts = bench.database().collection::<Document>("accounts");
        let builder = bench.place.builder().state(accounts);
        let runtime = bench.worker_of(builder, [pay]).await;
        let record = bench.pays(&runtime, "t").await;
        assert_eq!(record.state, Status::Failed);
        let message = error(&record).message;
        assert!(
            message.contains("not for a transactional action"),
            "{message}"
        );
        bench.is_untouched().await;
    });
}
