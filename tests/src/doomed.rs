//! A store that kills its process at a given write.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::DateTime;
use milestone_runtime::{
    core::record::{Command, MilestoneId, MilestoneRecord, Unreadable},
    store::{
        Batching, ClaimRequest, Claimed, Commit, Committed, Filter, Hints, Insertion, Listed, Page,
        RenewRequest, Renewed, Sent, ServerInfo, Store, StoreFuture, Wanted, WorkerInfo,
    },
};

/// A store in front of another one. At the write of that number the process ends as by SIGKILL: nothing is unwound, nothing is handed back.
#[derive(Debug)]
pub struct Doomed {
    inner: Arc<dyn Store>,
    at: usize,
    moment: Moment,
    writes: AtomicUsize,
    /// Those without a reply yet.
    on_their_way: AtomicUsize,
}

/// On which side of a write the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nothing has happened.
    Before,
    /// It has happened, and nobody here knows.
    After,
}

impl Doomed {
    /// A store whose write of that number, from 1, is the last thing that its process does.
    pub fn new(inner: Arc<dyn Store>, at: usize, moment: Moment) -> Arc<Self> {
        Arc::new(Self {
            inner,
            at,
            moment,
            writes: AtomicUsize::new(0),
            on_their_way: AtomicUsize::new(0),
        })
    }

    /// Waits until each write that was sent has its reply, so that the process ends in order only if none of them is the last of it. Others
    /// may read what a write has done before its reply is here.
    pub async fn rest(&self) {
        while self.on_their_way.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn is_the_one(&self) -> bool {
        self.writes.fetch_add(1, Ordering::SeqCst) + 1 == self.at
    }

    /// Calls that change nothing are no place to die at: it is as if it had been at the write before.
    fn write<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let doomed = self.is_the_one();
            if doomed && self.moment == Moment::Before {
                std::process::abort();
            }
            self.on_their_way.fetch_add(1, Ordering::SeqCst);
            let reply = call(&*self.inner).await;
            if doomed {
                std::process::abort();
            }
            self.on_their_way.fetch_sub(1, Ordering::SeqCst);
            reply
        })
    }
}

impl Store for Doomed {
    fn open(&self) -> StoreFuture<'_, ServerInfo> {
        self.inner.open()
    }

    fn now(&self) -> StoreFuture<'_, DateTime> {
        self.inner.now()
    }

    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>> {
        self.write(|store| store.insert(batch))
    }

    /// One that takes nothing is no write, which is known only after it. To end before one that does is to end after the write before it.
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            let claimed = self.inner.claim(request).await?;
            if !claimed.records.is_empty() && self.is_the_one() {
                std::process::abort();
            }
            Ok(claimed)
        })
    }

    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>> {
        self.write(|store| store.commit(batch))
    }

    fn renew(&self, request: RenewRequest) -> StoreFuture<'_, Renewed> {
        self.write(|store| store.renew(request))
    }

    fn send(&self, id: MilestoneId, command: Command) -> StoreFuture<'_, Sent> {
        self.write(|store| store.send(id, command))
    }

    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>> {
        self.inner.get(ids)
    }

    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed> {
        self.inner.list(filter, page)
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, u64> {
        self.inner.count(filter)
    }

    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool> {
        self.write(|store| store.remove(id))
    }

    fn changes(&self, wanted: Wanted) -> StoreFuture<'_, Option<Hints>> {
        self.inner.changes(wanted)
    }

    fn batching(&self) -> Batching {
        self.inner.batching()
    }

    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()> {
        self.inner.heartbeat(worker)
    }

    fn retire(&self, worker: String) -> StoreFuture<'_, ()> {
        self.inner.retire(worker)
    }

    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>> {
        self.inner.workers()
    }
}
