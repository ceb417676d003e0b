//! The embedded store: SQLite in one file, or in memory.
//!
//! No server is needed, and several processes of one machine may share the file: one writes at a time, the others wait. What was
//! answered is on the disk (write-ahead log, `synchronous=FULL`): it survives a killed process and a power loss. All writes that wait
//! for the disk go there together.
//!
//! Each worker holds a lock of the operating system on a file of its own, in the folder `<file>-workers` beside the database. The lock
//! ends with the process, however it ends, so the milestones of a dead worker are taken over at once.
//!
//! The database may hold tables of the application too. Its documents are BSON, with a few columns beside them for search.

mod alive;
mod claim;
mod clock;
mod commit;
mod connect;
mod encode;
mod errors;
mod hints;
mod insert;
mod list;
mod names;
#[cfg(feature = "testing")]
mod raw;
mod renew;
mod row;
mod schema;
mod send;
mod session;
mod threads;
mod workers;

use std::{path::Path, sync::Arc};

use bson::DateTime;
use milestone_core::record::{Command, MilestoneId, MilestoneRecord, Unreadable};

use super::{
    Batching, ClaimRequest, Claimed, Commit, Committed, Filter, Hints, Insertion, Listed, Page,
    RenewRequest, Renewed, Sent, ServerInfo, Store, StoreError, StoreFuture, Tally, Wanted,
    WorkerInfo,
};
use names::Database;
use threads::Threads;

/// Milestones in SQLite. Its calls may be made from any executor; the work is done on threads of its own, which end when it is dropped.
#[derive(Debug)]
pub struct SqliteStore {
    database: Arc<Database>,
    threads: Threads,
}

impl SqliteStore {
    /// The store in the file at `path`, which is made if it is missing; its folder must be there. The milestones are in a table of the
    /// collection's name. Nothing is read or written before the first call.
    ///
    /// # Errors
    /// If the collection cannot be the name of a table, or the system gives no thread.
    pub fn open_file(path: impl AsRef<Path>, collection: &str) -> Result<Self, StoreError> {
        Self::new(Database::file(path.as_ref(), collection)?)
    }

    /// A store in memory, which ends with this value: for tests and for trying things.
    ///
    /// # Errors
    /// If the collection cannot be the name of a table, or the system gives no thread.
    pub fn memory(collection: &str) -> Result<Self, StoreError> {
        Self::new(Database::memory(collection)?)
    }

    fn new(database: Database) -> Result<Self, StoreError> {
        let database = Arc::new(database);
        let threads = Threads::start(&database)?;
        Ok(Self { database, threads })
    }
}

impl Store for SqliteStore {
    fn open(&self) -> StoreFuture<'_, ServerInfo> {
        // The tables are made whenever a connection is.
        let opened = self.threads.write(|session| {
            session.alive.sweep();
            Ok(())
        });
        Box::pin(async move {
            opened.await?;
            let version = rusqlite::version();
            let description = format!("SQLite {version}, {}", self.database.place);
            Ok(ServerInfo::new(description, clock::now()))
        })
    }

    fn lacks(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(connect::lacks(&self.database)))
    }

    fn now(&self) -> StoreFuture<'_, DateTime> {
        Box::pin(std::future::ready(Ok(clock::now())))
    }

    fn batching(&self) -> Batching {
        // Small ones: while one is written, the engine works on the one before. Those that wait share a transaction all the same.
        Batching::new(8, 64)
    }

    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>> {
        let batch: Vec<_> = batch.iter().map(|record| insert::prepare(record)).collect();
        self.threads
            .write_many(batch.len(), |session| insert::insert(session, batch))
    }

    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            let request = Arc::new(request);
            let seen = Arc::clone(&request);
            // A worker that finds nothing to do must not keep others from writing.
            if self
                .threads
                .read(move |reading| claim::is_anything_due(reading, &seen))
                .await?
            {
                self.threads
                    .write(move |session| claim::claim(session, &request))
                    .await
            } else {
                Ok(Claimed::default())
            }
        })
    }

    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>> {
        let count = batch.len();
        let told = self.threads.write_many(count, move |session| {
            batch
                .iter()
                .map(|one| commit::commit(session, one))
                .collect()
        });
        Box::pin(async move {
            Ok(told.await.unwrap_or_else(|error| {
                let error = Arc::new(error);
                (0..count)
                    .map(|_| Committed::Unknown(Arc::clone(&error)))
                    .collect()
            }))
        })
    }

    fn renew(&self, request: RenewRequest) -> StoreFuture<'_, Renewed> {
        self.threads
            .write(move |session| renew::renew(session, &request))
    }

    fn send(&self, id: MilestoneId, command: Command) -> StoreFuture<'_, Sent> {
        self.threads
            .write(move |session| send::send(session, &id, &command))
    }

    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>> {
        self.threads.read(move |reading| list::get(reading, &ids))
    }

    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed> {
        self.threads
            .read(move |reading| list::list(reading, &filter, &page))
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, u64> {
        self.threads
            .read(move |reading| list::count(reading, &filter))
    }

    fn tally(&self, filter: Filter) -> StoreFuture<'_, Vec<Tally>> {
        self.threads
            .read(move |reading| list::tally(reading, &filter))
    }

    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool> {
        self.threads.write(move |session| {
            let removed = row::remove(session, &id)?;
            session.hint |= removed;
            Ok(removed)
        })
    }

    fn changes(&self, _: Wanted) -> StoreFuture<'_, Option<Hints>> {
        Box::pin(std::future::ready(Ok(Some(self.threads.hints()))))
    }

    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()> {
        self.threads
            .write(move |session| workers::heartbeat(session, &worker))
    }

    fn retire(&self, worker: String) -> StoreFuture<'_, ()> {
        self.threads
            .write(move |session| workers::retire(session, &worker))
    }

    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>> {
        self.threads.read(workers::workers)
    }
}
