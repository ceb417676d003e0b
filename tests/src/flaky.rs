//! A store that fails when a test wants it to.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bson::DateTime;
use milestone_runtime::{
    core::record::{Command, MilestoneId, MilestoneRecord, Unreadable},
    store::{
        Batching, ClaimRequest, Claimed, Commit, Committed, Filter, Hints, Insertion, Listed, Page,
        RenewRequest, Renewed, Sent, ServerInfo, Store, StoreError, StoreFuture, Wanted,
        WorkerInfo,
    },
};
use tokio::sync::watch;

/// A store in front of another one, whose calls fail on demand.
#[derive(Debug)]
pub struct Flaky {
    inner: Arc<dyn Store>,
    away: AtomicBool,
    calls: AtomicUsize,
    /// One call of so many is lost; 0 is none.
    lost: AtomicUsize,
    /// How many calls that write there have been.
    writes: AtomicUsize,
    cut: Mutex<Option<Cut>>,
    /// Whether the reply of the next claim that takes something is lost.
    lose_claim: AtomicBool,
    /// Whether commits, carried out, wait with their replies.
    replies_wait: watch::Sender<bool>,
    /// How many replies wait or have waited.
    waited: AtomicUsize,
    no_renewals: AtomicBool,
}

/// Where a worker dies: before or after its n-th call that writes arrives, counted from 1. A claim that takes nothing does not count, nor
/// does a renewal; one that takes something has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of the write.
    pub at: usize,
    /// Whether that write still arrives, and only its reply is lost.
    pub arrives: bool,
}

impl Flaky {
    /// A store that does not fail yet.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            away: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            cut: Mutex::new(None),
            lose_claim: AtomicBool::new(false),
            replies_wait: watch::Sender::new(false),
            waited: AtomicUsize::new(0),
            no_renewals: AtomicBool::new(false),
        })
    }

    /// From now on the replies of commits wait, or all of them come.
    pub fn hold_replies(&self, hold: bool) {
        self.replies_wait.send_replace(hold);
    }

    /// How many replies wait or have waited.
    pub fn replies_held(&self) -> usize {
        self.waited.load(Ordering::SeqCst)
    }

    /// From now on no renewal arrives, or all of them do again.
    pub fn no_renewals(&self, none: bool) {
        self.no_renewals.store(none, Ordering::SeqCst);
    }

    /// From that write on nothing arrives any more, as if the process were dead.
    pub fn cut(&self, cut: Cut) {
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut);
    }

    /// Whether the cut has come.
    pub fn is_cut(&self) -> bool {
        self.away.load(Ordering::SeqCst)
    }

    /// Loses the reply of the next claim that takes something.
    pub fn lose_next_claim(&self) {
        self.lose_claim.store(true, Ordering::SeqCst);
    }

    /// Whether the claim whose reply is to be lost is still to come.
    pub fn has_claim_to_lose(&self) -> bool {
        self.lose_claim.load(Ordering::SeqCst)
    }

    /// From now on no call arrives, or all of them do again.
    pub fn away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// From now on the reply of one call in so many is lost, though the call has arrived; 0 is none.
    pub fn lose_one_in(&self, calls: usize) {
        self.lost.store(calls, Ordering::SeqCst);
    }

    /// How many calls there have been.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Counts a write, and gives the cut if it comes at this one.
    fn count_write(&self) -> Option<Cut> {
        let count = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let cut = *self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        cut.filter(|cut| cut.at == count)
    }

    /// A call that writes.
    fn writing<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let cut = self.count_write();
            if cut.is_some_and(|cut| !cut.arrives) {
                self.away(true);
            }
            let reply = self.failing(call).await?;
            if cut.is_some() {
                self.away(true);
                return Err(StoreError::Other("the reply is lost".to_owned()));
            }
            Ok(reply)
        })
    }

    fn failing<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let count = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
            if self.away.load(Ordering::SeqCst) {
                return Err(StoreError::Unreachable {
                    server: "nowhere".to_owned(),
                    reason: "the test says so".to_owned(),
                    sent: false,
                });
            }
            let reply = call(&*self.inner).await?;
            let lost = self.lost.load(Ordering::SeqCst);
            if lost > 0 && count.is_multiple_of(lost) {
                return Err(StoreError::Other("the reply is lost".to_owned()));
            }
            Ok(reply)
        })
    }
}

impl Store for Flaky {
    fn open(&self) -> StoreFuture<'_, ServerInfo> {
        self.inner.open()
    }

    fn now(&self) -> StoreFuture<'_, DateTime> {
        self.failing(|store| store.now())
    }

    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>> {
        self.writing(|store| store.insert(batch))
    }

    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            let claimed = self.failing(|store| store.claim(request)).await?;
            if claimed.records.is_empty() {
                return Ok(claimed);
            }
            let cut = self.count_write().is_some();
            if cut {
                self.away(true);
            }
            if cut || self.lose_claim.swap(false, Ordering::SeqCst) {
                return Err(StoreError::Other("the reply is lost".to_owned()));
            }
            Ok(claimed)
        })
    }

    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>> {
        Box::pin(async move {
            let committed = self.writing(|store| store.commit(batch)).await?;
            let mut replies_wait = self.replies_wait.subscribe();
            if *replies_wait.borrow_and_update() {
                self.waited.fetch_add(1, Ordering::SeqCst);
                // The sender lives as long as this store.
                let _ = replies_wait.wait_for(|wait| !*wait).await;
            }
            Ok(committed)
        })
    }

    fn renew(&self, request: RenewRequest) -> StoreFuture<'_, Renewed> {
        if self.no_renewals.load(Ordering::SeqCst) {
            let error = StoreError::Other("no renewal arrives".to_owned());
            return Box::pin(std::future::ready(Err(error)));
        }
        self.failing(|store| store.renew(request))
    }

    fn send(&self, id: MilestoneId, command: Command) -> StoreFuture<'_, Sent> {
        self.writing(|store| store.send(id, command))
    }

    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>> {
        self.failing(|store| store.get(ids))
    }

    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed> {
        self.failing(|store| store.list(filter, page))
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, u64> {
        self.failing(|store| store.count(filter))
    }

    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool> {
        self.failing(|store| store.remove(id))
    }

    fn changes(&self, wanted: Wanted) -> StoreFuture<'_, Option<Hints>> {
        self.failing(move |store| store.changes(wanted))
    }

    fn batching(&self) -> Batching {
        self.inner.batching()
    }

    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()> {
        self.failing(|store| store.heartbeat(worker))
    }

    fn retire(&self, worker: String) -> StoreFuture<'_, ()> {
        self.failing(|store| store.retire(worker))
    }

    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>> {
        self.failing(|store| store.workers())
    }
}
