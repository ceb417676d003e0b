//! MongoDB: standalone, replica set or sharded cluster, from version 5.0 on. All driver calls of the project stand in this folder.
//!
//! Writes are acknowledged by a majority and journalled. Nothing here rests on a retry of the driver being recognised: each write is
//! filtered on what it was decided on, and a reply that is lost is settled by reading.

mod claim;
mod commit;
mod connect;
pub(crate) mod errors;
mod hints;
mod indexes;
mod insert;
mod judge;
mod list;
mod nesting;
mod read;
mod renew;
mod send;
mod session;
mod sessions;
mod traces;
mod update;
mod uri;
mod witnesses;
mod workers;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use bson::{DateTime, Document};
use milestone_core::record::{Command, MilestoneId, MilestoneRecord, Unreadable};
use mongodb::options::ClientOptions;

use self::{
    connect::{Connection, Source},
    uri::Address,
};
pub(crate) use self::{
    errors::{is_away, is_duplicate_key, is_write_conflict, reason},
    session::{SessionInsertion, Target},
    sessions::NOTED_FOR,
    traces::{OldTraces, TRACES_AT_ONCE},
    witnesses::{Outcome, outcome_of},
};
use super::{
    ClaimRequest, Claimed, Commit, Committed, Filter, Hints, Insertion, Listed, Page, RenewRequest,
    Renewed, Sent, ServerInfo, Store, StoreError, StoreFuture, Tally, Wanted, WorkerInfo,
};

/// The collection of the milestones, where none is named. That of the workers has `.workers` behind it.
pub const DEFAULT_COLLECTION: &str = "_milestones_";

/// The database, where the URI names none.
pub const DEFAULT_DATABASE: &str = "milestone";

/// Milestones in MongoDB.
///
/// The driver binds a client to the tokio runtime that makes it, so the client is made by [`Store::open`], and all later calls must be
/// made on the same runtime.
pub struct MongoStore {
    source: Source,
    database: String,
    collection: String,
    connection: RwLock<Option<Arc<Connection>>>,
    ended: sessions::Ended,
    spare: claim::Spare,
}

impl MongoStore {
    /// A store with options of the driver's, such as a handler of command events. Write concern, read concern and read preference are
    /// those of the store, whatever the options say.
    pub fn new(
        options: ClientOptions,
        database: impl Into<String>,
        collection: impl Into<String>,
    ) -> Self {
        Self {
            source: Source::Options(Box::new(options)),
            database: database.into(),
            collection: collection.into(),
            connection: RwLock::new(None),
            ended: sessions::Ended::default(),
            spare: claim::Spare::default(),
        }
    }

    /// A store at a URI, `mongodb://` or `mongodb+srv://`. The path is the database, default [`DEFAULT_DATABASE`]; the collection is
    /// [`DEFAULT_COLLECTION`] if `None`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`StoreError::Uri`] if it cannot be understood.
    pub fn from_uri(uri: &str, collection: Option<&str>) -> Result<Self, StoreError> {
        let address = Address::parse(uri)?;
        Ok(Self {
            database: address.database.clone(),
            source: Source::Uri(address),
            collection: collection.unwrap_or(DEFAULT_COLLECTION).to_owned(),
            connection: RwLock::new(None),
            ended: sessions::Ended::default(),
            spare: claim::Spare::default(),
        })
    }

    /// What the server says of itself.
    pub(crate) async fn hello(&self) -> Result<Document, StoreError> {
        self.connection()?.ask("hello").await
    }

    /// The read concern of a read on which a decision rests: see `read.rs`.
    pub(crate) fn settled(&self) -> &'static str {
        match self.connection() {
            Ok(connection) if !connection.is_standalone() => "linearizable",
            _ => "local",
        }
    }

    /// A client of the driver with the store's options, bound to the tokio runtime that asks for it.
    pub(crate) async fn client(&self) -> Result<mongodb::Client, StoreError> {
        self.source.client().await
    }

    /// The name of the database.
    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    /// The name of the collection of the milestones.
    pub(crate) fn collection(&self) -> &str {
        &self.collection
    }

    fn connection(&self) -> Result<Arc<Connection>, StoreError> {
        self.connection
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .ok_or_else(|| StoreError::Other("the store has not been opened".to_owned()))
    }

    /// The connection, which is made but not yet known to the other calls if there is none.
    async fn connection_or_new(&self) -> Result<Arc<Connection>, StoreError> {
        match self.connection() {
            Ok(connection) => Ok(connection),
            Err(_) => Ok(Arc::new(
                Connection::new(&self.source, &self.database, &self.collection).await?,
            )),
        }
    }

    async fn connect(&self) -> Result<ServerInfo, StoreError> {
        let connection = self.connection_or_new().await?;
        let server = connection.introduce().await?;
        indexes::ensure(&connection).await?;
        *self
            .connection
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(connection);
        Ok(server)
    }
}

impl fmt::Debug for MongoStore {
    /// Without the options, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoStore")
            .field("servers", &self.source.servers())
            .field("database", &self.database)
            .field("collection", &self.collection)
            .finish_non_exhaustive()
    }
}

impl Store for MongoStore {
    fn open(&self) -> StoreFuture<'_, ServerInfo> {
        Box::pin(self.connect())
    }

    fn lacks(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async { indexes::lacks(&*self.connection_or_new().await?).await })
    }

    fn mongodb(&self) -> Option<&MongoStore> {
        Some(self)
    }

    fn now(&self) -> StoreFuture<'_, DateTime> {
        Box::pin(async { self.connection()?.now().await })
    }

    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>> {
        Box::pin(async move { insert::insert(&*self.connection()?, &batch).await })
    }

    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Claimed> {
        Box::pin(async move { claim::claim(&*self.connection()?, &self.spare, &request).await })
    }

    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>> {
        Box::pin(async move { commit::commit(&*self.connection()?, &batch).await })
    }

    fn renew(&self, request: RenewRequest) -> StoreFuture<'_, Renewed> {
        Box::pin(async move { renew::renew(&*self.connection()?, &request).await })
    }

    fn send(&self, id: MilestoneId, command: Command) -> StoreFuture<'_, Sent> {
        Box::pin(async move { send::send(&*self.connection()?, &id, &command).await })
    }

    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>> {
        Box::pin(async move { read::get(&*self.connection()?, &ids).await })
    }

    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed> {
        Box::pin(async move { list::list(&*self.connection()?, &filter, &page).await })
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, u64> {
        Box::pin(async move { list::count(&*self.connection()?, &filter).await })
    }

    fn tally(&self, filter: Filter) -> StoreFuture<'_, Vec<Tally>> {
        Box::pin(async move { list::tally(&*self.connection()?, &filter).await })
    }

    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool> {
        Box::pin(async move { list::remove(&*self.connection()?, &id).await })
    }

    fn changes(&self, wanted: Wanted) -> StoreFuture<'_, Option<Hints>> {
        Box::pin(async move { hints::changes(&*self.connection()?, wanted).await })
    }

    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()> {
        Box::pin(async move { workers::heartbeat(&*self.connection()?, &worker).await })
    }

    fn retire(&self, worker: String) -> StoreFuture<'_, ()> {
        Box::pin(async move { workers::retire(&*self.connection()?, &worker).await })
    }

    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>> {
        Box::pin(async { workers::workers(&*self.connection()?).await })
    }
}
