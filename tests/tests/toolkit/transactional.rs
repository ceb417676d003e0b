//! Actions that run in a transaction: what they write is there exactly once.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

mod bodies;
mod conflicts;
mod cost;
mod lost_replies;
mod processes;
mod refused;
mod undo;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::Document;
use milestone_runtime::{
    Handle, Method, Runtime, RuntimeBuilder,
    action::{ActionError, Call},
    core::record::{MilestoneRecord, Status},
    dynamic::Action,
    mongo::{Tx, TxFuture},
};
use milestone_tests::{
    payments::{self, Transfer, audit, quick},
    place::{Kind, Place, run_within},
    server::Scratch,
};
use mongodb::Database;

/// A database with the accounts `a` and `b`.
struct Bench {
    place: Place,
}

/// How often a body was run.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// One more; gives its number, from 1.
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs the body of a test on a bench.
fn on_bench<F: Future<Output = ()>>(body: impl FnOnce(Bench) -> F) {
    run_within(Duration::from_mins(2), Kind::MongoDb, |place| async move {
        let bench = Bench { place };
        payments::open(&bench.database(), ["a", "b"]).await;
        body(bench).await;
    });
}

impl Bench {
    fn scratch(&self) -> &Scratch {
        self.place.scratch().unwrap()
    }

    fn database(&self) -> Database {
        self.scratch().database()
    }

    /// A worker at work.
    async fn worker(&self, methods: impl IntoIterator<Item = Method>) -> Runtime {
        self.worker_of(self.place.builder(), methods).await
    }

    async fn worker_of(
        &self,
        mut builder: RuntimeBuilder,
        methods: impl IntoIterator<Item = Method>,
    ) -> Runtime {
        for method in methods {
            builder = builder.register(method);
        }
        let runtime = builder.build().await.unwrap();
        runtime.spawn();
        runtime
    }

    async fn start(&self, runtime: &Runtime, id: &str, transfer: Transfer) -> Handle<Document> {
        let pay = Action::new("pay").transactional();
        runtime
            .start("Transfer", pay, transfer)
            .id(id)
            .await
            .unwrap()
    }

    /// What became of one transfer of 10.
    async fn pays(&self, runtime: &Runtime, id: &str) -> Arc<MilestoneRecord> {
        let handle = self.start(runtime, id, payments::from_a_to_b(10)).await;
        handle.ended().await.unwrap()
    }

    /// The transfer was made, once, and the milestone says so.
    async fn is_paid(&self, record: &MilestoneRecord) {
        assert_eq!(record.state, Status::Completed, "{record:#?}");
        assert_eq!(audit(&self.database()).await, 1);
        let balance = payments::balances(&self.database()).await["a"];
        let output = milestone_tests::look::action(record, "pay").output.clone();
        assert_eq!(output, Some(balance.into()));
    }

    /// Nothing was written.
    async fn is_untouched(&self) {
        assert_eq!(audit(&self.database()).await, 0);
    }
}

/// A method `pay` of a body that is told how often it has been run.
fn pay_by(
    runs: &Runs,
    body: impl for<'t> Fn(&'t Call, &'t mut Tx, usize) -> TxFuture<'t, Result<i64, ActionError>>
    + Send
    + Sync
    + 'static,
) -> Method {
    let runs = runs.clone();
    Method::transactional("pay", move |call, tx| body(call, tx, runs.next())).options(quick())
}

impl Bench {
    /// How many transfers were made; each is in the balances.
    async fn paid(&self) -> usize {
        audit(&self.database()).await
    }

    #[expect(clippy::unused_self, reason = "it reads as the others do")]
    fn is_completed(&self, record: &MilestoneRecord) {
        assert_eq!(record.state, Status::Completed, "{record:#?}");
    }
}
