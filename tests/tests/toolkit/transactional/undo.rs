//! An undo sees the output of its action exactly if the transaction was committed.

use std::time::Duration;

use bson::{Bson, Document, doc};
use milestone_runtime::{
    Method,
    action::{Options, RetryPolicy},
    core::record::{MilestoneRecord, Status},
    dynamic::Action,
    prelude::*,
};
use milestone_tests::{
    ledger::Ledger,
    look::{action, attempts},
    payments::{self, all, balances, from_a_to_b, put, quick, take, transfer, witnesses},
};

use super::{Bench, Runs, on_bench, pay_by};

const NEVER: Options = quick().retry(RetryPolicy::never()).undo("pay-back");

/// An undo that notes what it sees of what its action gave.
fn pay_back(ledger: &Ledger) -> Method {
    let ledger = ledger.clone();
    Method::transactional("pay-back", move |call, tx| {
        let ledger = ledger.clone();
        Box::pin(async move {
            let output = call.output("pay").cloned();
            ledger.note(format!("{output:?}"));
            if output.is_some() {
                let Params(transfer) = call.extract::<Params<payments::Transfer>>()?;
                take(tx, &transfer.from, -transfer.amount).await?;
                take(tx, &transfer.to, transfer.amount).await?;
            }
            Ok::<_, ActionError>(())
        })
    })
}

/// Pays, then fails for good in what comes next.
async fn undone(
    bench: &Bench,
    methods: Vec<Method>,
    graph: Action,
) -> std::sync::Arc<MilestoneRecord> {
    let runtime = bench.worker(methods).await;
    let handle = runtime
        .start("Transfer", graph, from_a_to_b(10))
        .id("t")
        .await
        .unwrap();
    let record = handle.ended().await.unwrap();
    assert_eq!(record.state, Status::Undone, "{record:#?}");
    runtime.shutdown().await;
    record
}

async fn sums(bench: &Bench) -> (i64, i64) {
    let balances = balances(&bench.database()).await;
    (balances["a"], balances["b"])
}

fn fails() -> Method {
    Method::new("fails", |_| async {
        Err::<(), _>(ActionError::fatal("it cannot be"))
    })
}

/// What is in the milestone is what the undo sees; a transactional undo takes it back exactly once, though its own first reply fails.
#[test]
fn an_output_that_is_known_is_seen() {
    on_bench(|bench| async move {
        let ledger = Ledger::new();
        let pay = payments::pay().options(quick().undo("pay-back"));
        let graph = Action::new("pay").next([Action::new("fails")]);
        undone(&bench, vec![pay, pay_back(&ledger), fails()], graph).await;
        assert_eq!(ledger.entries(), [format!("{:?}", Some(Bson::Int64(990)))]);
        assert_eq!(sums(&bench).await, (1_000, 1_000));
        let stored = witnesses(&bench.database()).await;
        assert!(
            stored
                .iter()
                .all(|witness| !witness.contains_key("refused")),
            "{stored:?}"
        );
        assert_eq!(stored.len(), 2, "one of the action, and one of its undo");
    });
}

/// Its body failed: there was no commit, and there will be none.
#[test]
fn without_a_commit_nothing_is_seen() {
    on_bench(|bench| async move {
        let ledger = Ledger::new();
        let pay = pay_by(&Runs::default(), |call, tx, _| {
            Box::pin(async move {
                transfer(call, tx).await?;
                Err(ActionError::fatal("no"))
            })
        });
        let record = undone(
            &bench,
            vec![pay.options(NEVER), pay_back(&ledger)],
            Action::new("pay"),
        )
        .await;
        assert_eq!(ledger.entries(), ["None"]);
        assert_eq!(action(&record, "pay").output, None);
        assert_eq!(sums(&bench).await, (1_000, 1_000));
        let refused = witnesses(&bench.database()).await;
        let refused = refused
            .iter()
            .filter(|witness| witness.get_bool("refused").unwrap_or(false));
        assert_eq!(refused.count(), 1);
    });
}

/// The attempt is cut off while its commit is on its way: the undo waits for that, and takes back what was paid.
#[test]
fn a_commit_on_its_way_is_waited_for_and_seen() {
    on_bench(|bench| async move {
        let ledger = Ledger::new();
        let held_back = doc! {
            "failCommands": ["commitTransaction"],
            "blockConnection": true,
            "blockTimeMS": 3_000,
        };
        let timeout = Duration::from_secs(1);
        let pay = payments::pay().options(NEVER.timeout(timeout));
        bench.scratch().fail(1, held_back).await;
        let record = undone(&bench, vec![pay, pay_back(&ledger)], Action::new("pay")).await;
        bench.scratch().heal().await;
        assert_eq!(
            attempts(&record, "pay").len(),
            2,
            "the action and its undo: {record:#?}"
        );
        assert_eq!(ledger.entries(), [format!("{:?}", Some(Bson::Int64(990)))]);
        assert_eq!(
            action(&record, "pay").output,
            None,
            "the milestone never heard of it"
        );
        assert_eq!(all(&bench.database(), "ledger").await.len(), 1);
        assert_eq!(sums(&bench).await, (1_000, 1_000));
    });
}

/// A body that was given up goes on to its commit after the undo: the two collide.
#[test]
fn what_is_undone_cannot_be_committed_any_more() {
    on_bench(|bench| async move {
        let ledger = Ledger::new();
        let (go, gone_on) = tokio::sync::watch::channel(false);
        let pay = pay_by(&Runs::default(), move |call, tx, _| {
            let mut gone_on = gone_on.clone();
            Box::pin(async move {
                gone_on.wait_for(|go| *go).await.or_retry()?;
                let accounts = tx.collection::<Document>("accounts");
                tx.run(accounts.find_one(doc! {})).await?;
                put(tx, call, &from_a_to_b(10)).await
            })
        });
        let later = Method::new("later", |_| async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Err::<(), _>(ActionError::fatal("it cannot be"))
        });
        let builder = bench.place.builder().grace(Duration::from_millis(100));
        let methods = [
            pay.options(quick().undo("pay-back")),
            pay_back(&ledger),
            later,
        ];
        let runtime = bench.worker_of(builder, methods).await;
        let graph = Action::fork("both").next(["pay", "later"]);
        let handle = runtime
            .start("Transfer", graph, from_a_to_b(10))
            .await
            .unwrap();
        let record = handle.ended().await.unwrap();
        assert_eq!(record.state, Status::Undone, "{record:#?}");
        assert_eq!(ledger.entries(), ["None"]);
        // It was told to stop, and goes on all the same.
        go.send(true).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.is_untouched().await;
        assert_eq!(sums(&bench).await, (1_000, 1_000));
    });
}
