//! What an action can know of its attempt.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bson::DateTime;
use milestone_core::record::{MilestoneId, Phase};

use crate::{
    engine::{Shared, hold::Hold},
    mongo::trace::WitnessKey,
};

/// What the runtime knows of an attempt: identity, number, the key for services that take one, and whether it should stop.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<ContextInner>,
}

#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) id: MilestoneId,
    /// When the milestone was started. It tells apart two that had one id, the first of which was removed.
    pub(crate) created_at: DateTime,
    pub(crate) kind: String,
    pub(crate) action: String,
    pub(crate) phase: Phase,
    pub(crate) attempt: i64,
    pub(crate) epoch: i64,
    pub(crate) worker: String,
    pub(crate) cancelled: tokio::sync::watch::Receiver<bool>,
    /// The worker of the attempt before this one, if it is gone or was when it was last heard of, and when the milestone was taken since.
    pub(crate) abandoned_by: Option<(String, DateTime)>,
    /// The lease under which it runs.
    pub(crate) hold: Arc<Hold>,
    pub(crate) shared: Arc<Shared>,
    /// What this attempt has written once, see `mongo/once`.
    pub(crate) written: Mutex<HashSet<WitnessKey>>,
    /// Whether its body is over or was given up, though somebody may still have this.
    pub(crate) over: Arc<AtomicBool>,
    /// Whether it is the attempt of a transactional action, whose body may be run several times.
    pub(crate) in_transaction: AtomicBool,
}

/// Notes the end of a body when it is dropped.
#[derive(Debug)]
pub(crate) struct Ending(pub(crate) Context);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.inner.over.store(true, Ordering::SeqCst);
    }
}

impl Context {
    pub(crate) fn new(inner: ContextInner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The milestone's id.
    pub fn milestone_id(&self) -> &MilestoneId {
        &self.inner.id
    }

    /// The name of the milestone's type.
    pub fn milestone_type(&self) -> &str {
        &self.inner.kind
    }

    /// The name of this action in its milestone.
    pub fn action(&self) -> &str {
        &self.inner.action
    }

    /// Whether the action is to be done, verified or undone.
    pub fn phase(&self) -> Phase {
        self.inner.phase
    }

    /// The number of this attempt, from 1; attempts to verify and to undo count for themselves.
    pub fn attempt(&self) -> i64 {
        self.inner.attempt
    }

    /// How often the milestone has been taken by a worker: a fencing token, which only grows.
    pub fn epoch(&self) -> i64 {
        self.inner.epoch
    }

    /// The name of the worker.
    pub fn worker(&self) -> &str {
        &self.inner.worker
    }

    /// The same for every attempt of this action in this milestone: what one hands to a payment provider, or uses as the key
    /// of a write, so that a second attempt does nothing twice. A verify has that of its action, to look for what it did; an undo has one
    /// of its own, see [`Context::key_of`].
    pub fn idempotency_key(&self) -> String {
        match self.inner.phase {
            Phase::Undo => format!("{}/{}/undo", self.inner.id, self.inner.action),
            _ => self.key_of(&self.inner.action),
        }
    }

    /// The idempotency key of another action of the same milestone, by its name in the graph: what an undo needs to find what its action
    /// did.
    pub fn key_of(&self, action: &str) -> String {
        format!("{}/{action}", self.inner.id)
    }

    pub(crate) fn created_at(&self) -> DateTime {
        self.inner.created_at
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.inner.hold
    }

    /// From now on what it does is done in a transaction.
    pub(crate) fn begin_transaction(&self) {
        self.inner.in_transaction.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.inner.in_transaction.load(Ordering::Relaxed)
    }

    /// The worker of the attempt before this one, if it is gone, and when the milestone was taken since.
    pub(crate) fn abandoned_by(&self) -> Option<&(String, DateTime)> {
        self.inner.abandoned_by.as_ref()
    }

    /// Notes what is written once; `false`: it was noted before.
    pub(crate) fn use_once(&self, key: &WitnessKey) -> bool {
        self.written().insert(key.clone())
    }

    pub(crate) fn forget_once(&self, key: &WitnessKey) {
        self.written().remove(key);
    }

    /// Whether its body is over or was given up: what is left of it must not write any more.
    pub(crate) fn is_over(&self) -> bool {
        self.inner.over.load(Ordering::SeqCst)
    }

    pub(crate) fn over(&self) -> &Arc<AtomicBool> {
        &self.inner.over
    }

    fn written(&self) -> MutexGuard<'_, HashSet<WitnessKey>> {
        self.inner
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the attempt should stop: its lease is lost, the milestone is cancelled, or the worker shuts down.
    pub fn is_cancelled(&self) -> bool {
        *self.inner.cancelled.borrow()
    }

    /// Waits until the attempt should stop.
    pub async fn cancelled(&self) {
        let mut cancelled = self.inner.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            // The sender is gone with the attempt itself; nobody will ask again.
            std::future::pending::<()>().await;
        }
    }
}
