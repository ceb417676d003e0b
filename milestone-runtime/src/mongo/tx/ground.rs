//! What a transaction of an action stands on: the client, the collections, and the key of its witness.

use std::sync::{Arc, atomic::AtomicBool};

use bson::RawDocumentBuf;
use milestone_core::record::Phase;
use mongodb::{
    Client, Collection, Database,
    options::{CollectionOptions, ReadPreference, SelectionCriteria, TransactionOptions},
};
use tokio::sync::OnceCell;

use super::{failures, sessions::Noted};
use crate::{
    action::{Context, Failure},
    engine::Shared,
    mongo::trace::{Trace, WitnessKey},
    store::{
        StoreError,
        mongodb::{MongoStore, Outcome, is_write_conflict},
    },
};

/// What a runtime has for its transactional actions.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// The application's client, if it has given one.
    given: Option<Client>,
    /// Why there are none; `None` where there are some.
    lacking: Option<String>,
    ready: OnceCell<Client>,
    pub(super) noted: Noted,
}

impl Transactions {
    pub(crate) fn new(given: Option<Client>, lacking: Option<String>) -> Self {
        Self {
            given,
            lacking,
            ready: OnceCell::new(),
            noted: Noted::default(),
        }
    }

    /// Why the database has none.
    pub(crate) fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// The client of the sessions. It is made by the first who asks, on the executor of the application, where all of them ask.
    async fn client(&self, shared: &Arc<Shared>) -> Result<&Client, StoreError> {
        self.ready
            .get_or_try_init(|| async {
                let made = ask(shared, |shared| async move {
                    let store = store(&shared)?;
                    store.make_witnesses().await?;
                    store.make_sessions().await
                });
                made.await?;
                match &self.given {
                    Some(client) => Ok(client.clone()),
                    None => store(shared)?.client().await,
                }
            })
            .await
    }
}

pub(super) struct Ground<'c> {
    pub(super) context: &'c Context,
    pub(super) client: Client,
    pub(super) options: TransactionOptions,
    pub(super) database: Database,
    pub(super) milestones: Collection<RawDocumentBuf>,
    pub(super) witnesses: Collection<RawDocumentBuf>,
    pub(super) key: WitnessKey,
    /// Whether a commit has been sent in this attempt.
    pub(super) commits: AtomicBool,
}

impl<'c> Ground<'c> {
    pub(super) async fn of(context: &'c Context) -> Result<Self, Failure> {
        let shared = context.shared();
        let client = loop {
            match shared.transactions.client(shared).await {
                Err(error) if passes(&error) => wait().await,
                result => break result,
            }
        };
        let client = client.map_err(|error| failures::of_store(&error))?.clone();
        let store = store(shared).map_err(|error| failures::of_store(&error))?;
        let options = store.transaction_options();
        let database = client.database(store.database());
        // Whatever the application's client says: nothing else is allowed in a transaction.
        let collection = |name: &str| {
            let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
            let options = CollectionOptions::builder().selection_criteria(primary);
            database.collection_with_options(name, options.build())
        };
        Ok(Self {
            context,
            options: options.map_err(|error| failures::of_store(&error))?,
            milestones: collection(store.collection()),
            witnesses: collection(&format!("{}.witnesses", store.collection())),
            key: key(context, context.phase()),
            commits: AtomicBool::new(false),
            database,
            client,
        })
    }

    /// What has become of the transaction of an earlier attempt, or of one at the same time.
    pub(super) async fn outcome(&self) -> Result<Option<Outcome>, Failure> {
        outcome(self.context.shared(), &self.key).await
    }

    /// From now on there may be a witness, which is to be removed.
    pub(super) fn left(&self) {
        let traces = &self.context.shared().traces;
        traces.left(Trace::Witness(self.key.clone()));
    }
}

/// The key that all attempts of an action share. A milestone that is started again under an id of which one was removed is another one.
pub(super) fn key(context: &Context, phase: Phase) -> WitnessKey {
    let what = match phase {
        Phase::Undo => "undo",
        _ => "do",
    };
    let started = context.created_at().timestamp_millis();
    WitnessKey::new(
        context.milestone_id(),
        context.action(),
        format!("{what} {started}"),
    )
}

async fn outcome(shared: &Arc<Shared>, key: &WitnessKey) -> Result<Option<Outcome>, Failure> {
    patiently(shared, |shared| {
        let key = key.clone();
        async move { store(&shared)?.outcome(&key).await }
    })
    .await
}

/// Asks the store until the database answers.
pub(super) async fn patiently<T, F>(
    shared: &Arc<Shared>,
    call: impl Fn(Arc<Shared>) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
    T: Send + 'static,
{
    loop {
        match ask(shared, &call).await {
            Ok(value) => return Ok(value),
            Err(error) if passes(&error) => wait().await,
            Err(error) => return Err(failures::of_store(&error)),
        }
    }
}

/// Whether it is no failure of the action, however long it takes.
fn passes(error: &StoreError) -> bool {
    match error {
        StoreError::Unreachable { .. } => true,
        // With a transaction that is not over: it is soon.
        StoreError::MongoDb(error) => is_write_conflict(error),
        _ => false,
    }
}

async fn wait() {
    let wait = std::time::Duration::from_millis(200);
    tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
}

/// Calls the store where its client lives.
async fn ask<T, F>(
    shared: &Arc<Shared>,
    call: impl FnOnce(Arc<Shared>) -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
    T: Send + 'static,
{
    let asked = shared.io.spawn(call(Arc::clone(shared))).await;
    asked.unwrap_or_else(|_| Err(StoreError::Other("the runtime is closing".to_owned())))
}

/// The store, which is MongoDB, since `build()` refuses transactional actions elsewhere.
pub(super) fn store(shared: &Shared) -> Result<&MongoStore, StoreError> {
    shared
        .store
        .mongodb()
        .ok_or_else(|| StoreError::Other("transactions need MongoDB".to_owned()))
}
