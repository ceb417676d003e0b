//! A bank, and actions of a test's own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bson::{Bson, Document, doc};
use milestone_runtime::{
    Handle, Method, OutcomeError, Runtime, RuntimeBuilder,
    action::{ActionError, Call, Context},
    dynamic::Action,
};
use milestone_tests::{
    ledger::quick,
    place::{Kind, Place},
    transfer::{self, SKEW},
};
use mongodb::Collection;

/// Accounts of a database of their own: Ann and Bob have 100 each.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) place: Place,
    pub(super) accounts: Collection<Document>,
}

impl Bench {
    pub(super) async fn new() -> Self {
        let place = Place::new(Kind::MongoDb).await;
        let accounts = place.scratch().unwrap().database().collection("accounts");
        transfer::open(&accounts, &["ann", "bob"]).await;
        Self { place, accounts }
    }

    /// A runtime that cleans soon.
    pub(super) fn builder(&self) -> RuntimeBuilder {
        self.place.builder().clock_skew(SKEW)
    }

    /// A worker with these actions.
    pub(super) async fn worker(&self, methods: impl IntoIterator<Item = Method>) -> Runtime {
        let methods = methods.into_iter();
        let builder = methods.fold(self.builder(), RuntimeBuilder::register);
        let runtime = builder.build().await.unwrap();
        runtime.spawn();
        runtime
    }

    /// An action with the accounts at hand, which is retried soon.
    pub(super) fn action<T, F>(
        &self,
        name: &str,
        body: impl Fn(Context, Collection<Document>) -> F + Send + Sync + 'static,
    ) -> Method
    where
        T: serde::Serialize + 'static,
        F: Future<Output = Result<T, ActionError>> + Send + 'static,
    {
        let accounts = self.accounts.clone();
        Method::new(name, move |call: Call| {
            body(call.context().clone(), accounts.clone())
        })
        .options(quick())
    }

    pub(super) async fn balance(&self, name: &str) -> i32 {
        self.document(name)
            .await
            .unwrap()
            .get_i32("balance")
            .unwrap()
    }

    pub(super) async fn document(&self, id: &str) -> Option<Document> {
        self.accounts.find_one(doc! { "_id": id }).await.unwrap()
    }

    /// How many witnesses there are.
    pub(super) async fn witnesses(&self) -> u64 {
        let database = self.place.scratch().unwrap().database();
        let witnesses = database.collection::<Document>("_milestones_.witnesses");
        witnesses.count_documents(doc! {}).await.unwrap()
    }
}

/// Takes so much from an account.
pub(super) fn less(amount: i32) -> Document {
    doc! { "$inc": { "balance": -amount } }
}

pub(super) fn ann() -> Document {
    doc! { "_id": "ann" }
}

/// Starts a milestone of one action.
pub(super) async fn start(runtime: &Runtime, action: &str) -> Handle<Document> {
    runtime.start("one", Action::new(action), ()).await.unwrap()
}

/// Counts the times that an action has run.
#[derive(Clone, Default)]
pub(super) struct Runs(Arc<AtomicI64>);

impl Runs {
    /// One more; how many they are with it.
    pub(super) fn add(&self) -> i64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// Waits until a condition that must be asked for is true.
pub(super) async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let began = std::time::Instant::now();
    while !condition().await {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "waiting for: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a milestone of one action; what it gave.
pub(super) async fn run(runtime: &Runtime, action: &str) -> Result<Bson, OutcomeError> {
    Ok(only(start(runtime, action).await.outcome().await?))
}

/// What the one last action of a milestone gave.
pub(super) fn only(outcome: Document) -> Bson {
    let (_, output) = outcome.into_iter().next().unwrap();
    output
}
