//! The reply of a commit is lost: what became of it is read, not guessed.

use std::{sync::Arc, time::Duration};

use bson::doc;
use milestone_runtime::store::mongodb::{DEFAULT_COLLECTION, MongoStore};
use milestone_tests::{look::attempts, payments::transfer, proxy::Proxy};

use super::{Runs, on_bench, pay_by};

/// Each commit is repeated so often, and each time the driver tries it twice.
const ALL_COMMITS: usize = 16;

fn counted(runs: &Runs) -> milestone_runtime::Method {
    pay_by(runs, |call, tx, _| Box::pin(transfer(call, tx)))
}

/// F31: the server has committed it; the reply is lost once, or every time.
#[test]
fn f31_a_commit_that_landed() {
    on_bench(|bench| async move {
        for (id, lost) in [("once", 1), ("always", ALL_COMMITS)] {
            let mut options = bench.scratch().options().await;
            let proxy = Proxy::before(&mut options).await;
            let store = MongoStore::new(options, bench.scratch().name(), DEFAULT_COLLECTION);
            let builder = bench.place.builder().store(Arc::new(store));
            let runs = Runs::default();
            let runtime = bench.worker_of(builder, [counted(&runs)]).await;
            proxy.lose_replies("commitTransaction", lost);
            let before = bench.paid().await;
            let record = bench.pays(&runtime, id).await;
            bench.is_completed(&record);
            assert_eq!(bench.paid().await, before + 1);
            assert_eq!((runs.count(), attempts(&record, "pay").len()), (1, 1));
            assert_eq!(proxy.lost(), lost);
            runtime.shutdown().await;
        }
    });
}

/// F31: the connection is closed before the server has seen the commit, every time: nothing was written, so the body is run again. What the first
/// transaction has locked is free by then.
#[test]
fn f31_a_commit_that_did_not_land() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let runtime = bench.worker([counted(&runs)]).await;
        let times = i32::try_from(ALL_COMMITS).unwrap();
        let closed = doc! { "failCommands": ["commitTransaction"], "closeConnection": true };
        bench.scratch().fail(times, closed).await;
        let began = std::time::Instant::now();
        let record = bench.pays(&runtime, "t").await;
        bench.scratch().heal().await;
        bench.is_paid(&record).await;
        assert_eq!((runs.count(), attempts(&record, "pay").len()), (2, 1));
        assert!(
            began.elapsed() < Duration::from_secs(45),
            "it did not wait for the server's limit of 60 s"
        );
    });
}

/// The server says that it has aborted the transaction.
#[test]
fn a_commit_that_is_refused() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let runtime = bench.worker([counted(&runs)]).await;
        let aborted = doc! {
            "failCommands": ["commitTransaction"],
            "errorCode": 251,
            "errorLabels": ["TransientTransactionError"],
        };
        bench.scratch().fail(1, aborted).await;
        let record = bench.pays(&runtime, "t").await;
        bench.scratch().heal().await;
        bench.is_paid(&record).await;
        assert_eq!(attempts(&record, "pay").len(), 1);
        assert_eq!(runs.count(), 2);
    });
}

/// Any operation of the transaction loses its connection, one after the other.
#[test]
fn a_connection_that_breaks_in_the_middle() {
    on_bench(|bench| async move {
        let runs = Runs::default();
        let mut options = bench.scratch().options().await;
        let proxy = Proxy::before(&mut options).await;
        let store = MongoStore::new(options, bench.scratch().name(), DEFAULT_COLLECTION);
        let client = bench.place.builder().client().build().await.unwrap();
        let builder = bench.place.builder().store(Arc::new(store));
        let _worker = bench.worker_of(builder, [counted(&runs)]).await;
        for (round, command) in ["update", "insert", "find", "findAndModify"]
            .into_iter()
            .enumerate()
        {
            proxy.lose_replies(command, 1);
            let id = format!("t-{round}");
            let handle = bench
                .start(&client, &id, milestone_tests::payments::from_a_to_b(10))
                .await;
            let record = handle.ended().await.unwrap();
            bench.is_completed(&record);
            assert_eq!(bench.paid().await, round + 1);
        }
    });
}
