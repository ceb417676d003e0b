//! A store in the memory of the process: no files, no threads, and the time of tokio's clock.

mod claim;
mod read;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bson::{Bson, DateTime, Document};
use milestone_core::{
    patch::size_of_value,
    record::{Command, MilestoneId, MilestoneRecord, Unreadable},
};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::Instant,
};

use crate::store::{
    ClaimRequest, Claimed, Commit, Committed, Filter, Hint, Hints, Insertion, Listed, Page,
    RenewRequest, Renewed, Sent, ServerInfo, Store, StoreError, StoreFuture, Wanted, WorkerInfo,
    document::{self, MAX_DOCUMENT, MAX_LEVELS},
};

/// When the time of a store in memory begins.
const BEGIN: i64 = 1_700_000_000_000;

/// Milestones in the memory of the process, for simulations: nothing in it waits, it has no threads, and its time is tokio's, so it
/// stands still under a paused clock. Several runtimes share it by its `Arc`, as several workers share a database. It begins at a fixed
/// date, so that a run can be repeated.
///
/// For an application's own tests, `Runtime::builder("memory:")` is the simpler one.
#[derive(Debug)]
pub struct MemoryStore {
    began: Instant,
    data: Mutex<Data>,
    /// It wakes those who listen in the order in which they came.
    hints: broadcast::Sender<()>,
}

#[derive(Debug, Default)]
struct Data {
    documents: BTreeMap<Key, Document>,
    workers: BTreeMap<String, WorkerInfo>,
}

/// An id in the order of MongoDB: all strings come before all `ObjectId`s.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    is_object_id: bool,
    id: MilestoneId,
}

impl From<MilestoneId> for Key {
    fn from(id: MilestoneId) -> Self {
        Self {
            is_object_id: matches!(id, MilestoneId::ObjectId(_)),
            id,
        }
    }
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            data: Mutex::default(),
            hints: broadcast::Sender::new(1),
        }
    }

    /// Its time.
    pub fn time(&self) -> DateTime {
        let passed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX / 4);
        DateTime::from_millis(BEGIN.saturating_add(passed))
    }

    /// A document as it is.
    pub fn document(&self, id: &MilestoneId) -> Option<Document> {
        self.lock().documents.get(&Key::from(id.clone())).cloned()
    }

    /// Puts a document in its place as it is, whatever it says; one of the same `_id` is replaced.
    ///
    /// # Errors
    /// If its `_id` is none of a milestone.
    pub fn plant(&self, document: Document) -> Result<(), StoreError> {
        let id = document.get("_id").unwrap_or(&Bson::Null);
        let id = MilestoneId::try_from(id).map_err(|error| StoreError::Other(error.to_owned()))?;
        self.lock().documents.insert(id.into(), document);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hint(&self) {
        // Nobody may listen.
        let _ = self.hints.send(());
    }

    fn insert_one(&self, record: &MilestoneRecord) -> Insertion {
        let document = record.to_document().map_err(|error| StoreError::Refused {
            reason: error.to_string(),
        });
        let document = match document.and_then(fitting) {
            Ok(document) => document,
            Err(error) => return Insertion::Refused(Arc::new(error)),
        };
        let mut data = self.lock();
        let key = Key::from(record.id.clone());
        if let Some(existing) = data.documents.get(&key) {
            return Insertion::Exists(MilestoneRecord::from_document(existing.clone()));
        }
        data.documents.insert(key, document);
        drop(data);
        if record.lease.is_none() {
            self.hint();
        }
        Insertion::Inserted
    }

    fn commit_one(&self, commit: &Commit) -> Committed {
        let mut data = self.lock();
        let Some(stored) = data.documents.get_mut(&Key::from(commit.id.clone())) else {
            return Committed::Lost;
        };
        let mut document = stored.clone();
        if let Err(answer) = document::commit(&mut document, commit) {
            return answer;
        }
        match fitting(document) {
            Ok(document) => *stored = document,
            Err(error) => return Committed::Refused(Arc::new(error)),
        }
        drop(data);
        if commit.patch.releases() {
            self.hint();
        }
        Committed::Done
    }

    fn renew_all(&self, request: &RenewRequest) -> Renewed {
        let mut renewed = Renewed {
            lost: Vec::new(),
            unrenewed: Vec::new(),
            mail: Vec::new(),
            now: self.time(),
        };
        let mut data = self.lock();
        for (id, token) in &request.holds {
            let document = data.documents.get_mut(&Key::from(id.clone()));
            let Some(document) =
                document.filter(|document| document::token(document) == Some(token))
            else {
                renewed.lost.push(id.clone());
                continue;
            };
            document::renew(document, request.until);
            let mail = document::integer(document, "mail").filter(|mail| *mail > 0);
            renewed.mail.extend(mail.map(|mail| (id.clone(), mail)));
        }
        renewed
    }

    fn send_one(&self, id: MilestoneId, command: &Command) -> Result<Sent, StoreError> {
        let mut data = self.lock();
        let Some(stored) = data.documents.get_mut(&Key::from(id)) else {
            return Ok(Sent::NotFound);
        };
        let mut document = stored.clone();
        if let Err(answer) = document::send(&mut document, command)? {
            return Ok(answer);
        }
        *stored = fitting(document)?;
        drop(data);
        self.hint();
        Ok(Sent::Delivered)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// The document, if it is within the limits that a MongoDB server has.
fn fitting(document: Document) -> Result<Document, StoreError> {
    let refused = |reason: String| Err(StoreError::Refused { reason });
    if document::is_too_deep(&document) {
        return refused(format!("the document has more than {MAX_LEVELS} levels"));
    }
    let fields = document.iter();
    let size: usize = fields
        .map(|(key, value)| 2 + key.len() + size_of_value(value))
        .sum();
    if size + 5 > MAX_DOCUMENT {
        return refused(format!(
            "the document has {} bytes, the limit is {MAX_DOCUMENT}",
            size + 5
        ));
    }
    Ok(document)
}

/// What is there already, as a call of the store gives it.
fn ready<'a, T: Send + 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Store for MemoryStore {
    fn open(&self) -> StoreFuture<'_, ServerInfo> {
        ready(Ok(ServerInfo::new("a store in memory", self.time())))
    }

    fn now(&self) -> StoreFuture<'_, DateTime> {
        ready(Ok(self.time()))
    }

    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>> {
        ready(Ok(batch
            .iter()
            .map(|record| self.insert_one(record))
            .collect()))
    }

    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Claimed> {
        ready(Ok(claim::claim(&mut self.lock().documents, &request)))
    }

    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>> {
        ready(Ok(batch
            .iter()
            .map(|commit| self.commit_one(commit))
            .collect()))
    }

    fn renew(&self, request: RenewRequest) -> StoreFuture<'_, Renewed> {
        ready(Ok(self.renew_all(&request)))
    }

    fn send(&self, id: MilestoneId, command: Command) -> StoreFuture<'_, Sent> {
        ready(self.send_one(id, &command))
    }

    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>> {
        ready(Ok(read::get(&self.lock().documents, ids)))
    }

    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed> {
        ready(Ok(read::list(&self.lock().documents, &filter, page)))
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, u64> {
        ready(Ok(read::count(&self.lock().documents, &filter)))
    }

    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool> {
        ready(Ok(self.lock().documents.remove(&Key::from(id)).is_some()))
    }

    fn changes(&self, _: Wanted) -> StoreFuture<'_, Option<Hints>> {
        let hints = futures_util::stream::unfold(self.hints.subscribe(), |mut hints| async move {
            match hints.recv().await {
                Ok(()) | Err(RecvError::Lagged(_)) => Some((Hint::Changed, hints)),
                Err(RecvError::Closed) => None,
            }
        });
        ready(Ok(Some(Box::pin(hints))))
    }

    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()> {
        self.lock().workers.insert(worker.id.clone(), worker);
        ready(Ok(()))
    }

    fn retire(&self, worker: String) -> StoreFuture<'_, ()> {
        self.lock().workers.remove(&worker);
        ready(Ok(()))
    }

    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>> {
        ready(Ok(self.lock().workers.values().cloned().collect()))
    }
}
