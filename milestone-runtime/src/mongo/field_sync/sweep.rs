//! The sweep: marks that were left are found, and their fan-outs started.

use std::{
    collections::HashMap,
    sync::{Weak, atomic::Ordering},
    time::Duration,
};

use bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use futures_util::{StreamExt as _, TryStreamExt as _};
use milestone_core::record::{MilestoneId, Status};
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};

use super::{
    FieldSync, FieldSyncError, concern,
    mark::{self, Left},
};
use crate::runtime::{Inner, Runtime};

/// How many marks are looked at in one go.
const BATCH: usize = 100;

impl FieldSync {
    /// Looks for marks that were left, starts their fan-outs, and says how many it has started. Workers do so by themselves, see
    /// [`RuntimeBuilder::field_sync`](crate::RuntimeBuilder::field_sync); it does no harm to do it more often. A document whose fan-out is
    /// under way is left alone, one whose fan-out has failed gets a new one.
    ///
    /// # Errors
    /// If a database does not answer. What could be started is started.
    pub async fn sweep(&self, runtime: &Runtime) -> Result<usize, FieldSyncError> {
        self.prepare().await?;
        let error = |error| self.inner.error(error);
        let now = self.inner.clock.now().await.map_err(error)?;
        let age = i64::try_from(self.older_than.as_millis()).unwrap_or(i64::MAX);
        let before = DateTime::from_millis(now.timestamp_millis().saturating_sub(age));
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let marked = self
            .inner
            .documents
            .find(doc! { mark::at(self.name()): { "$lt": before } })
            .sort(doc! { mark::at(self.name()): 1 })
            .projection(doc! { mark::mark(self.name()): 1 })
            .batch_size(u32::try_from(BATCH).unwrap_or(u32::MAX))
            .selection_criteria(primary)
            .read_concern(ReadConcern::local())
            .await
            .map_err(error)?;
        let mut batches = marked.try_chunks(BATCH);
        let (mut started, mut failed) = (0, None);
        while let Some(batch) = batches.next().await {
            let (batch, broken) = match batch {
                Ok(batch) => (batch, None),
                Err(broken) => (broken.0, Some(broken.1)),
            };
            match self.start_left(runtime, batch).await {
                Ok(count) => started += count,
                Err(reason) => failed = Some(reason),
            }
            if let Some(broken) = broken {
                return Err(error(broken));
            }
        }
        match failed {
            None => Ok(started),
            Some(reason) => Err(FieldSyncError::Sweep {
                name: self.name().to_owned(),
                reason,
            }),
        }
    }

    /// Starts what nobody has started of a batch of marked documents.
    async fn start_left(
        &self,
        runtime: &Runtime,
        documents: Vec<Document>,
    ) -> Result<usize, String> {
        let marked: Vec<(Bson, ObjectId)> = documents
            .iter()
            .filter_map(|document| {
                let id = document.get("_id")?.clone();
                Some((id, mark::seen(self.name(), document)?))
            })
            .collect();
        let states = self.states(runtime, &marked).await?;
        let starts = marked.iter().map(async |(id, seen)| {
            let milestone = mark::milestone(self.name(), id, *seen).into();
            match mark::left(states.get(&milestone).copied()) {
                Left::Wait => Ok(0),
                Left::Start => self.started(runtime, id, *seen).await,
                Left::MarkAnew => match self.mark_anew(id, *seen).await? {
                    Some(new) => self.started(runtime, id, new).await,
                    None => Ok(0),
                },
            }
        });
        let mut count = 0;
        let mut failed = None;
        for started in futures_util::future::join_all(starts).await {
            match started {
                Ok(started) => count += started,
                Err(reason) => failed = Some(reason),
            }
        }
        failed.map_or(Ok(count), Err)
    }

    async fn started(&self, runtime: &Runtime, id: &Bson, mark: ObjectId) -> Result<usize, String> {
        let started = self.start(runtime, id, mark).await;
        started.map(|_| 1).map_err(|error| error.to_string())
    }

    /// How far the milestones of marks are, those that exist.
    async fn states(
        &self,
        runtime: &Runtime,
        marked: &[(Bson, ObjectId)],
    ) -> Result<HashMap<MilestoneId, Status>, String> {
        let ids = marked
            .iter()
            .map(|(id, seen)| mark::milestone(self.name(), id, *seen).into())
            .collect();
        let found = runtime.call(|store| async move { store.get(ids).await });
        let found = found.await.map_err(|error| error.to_string())?;
        // One that cannot be read is told of by the start.
        let found = found.into_iter().flatten();
        Ok(found.map(|record| (record.id, record.state)).collect())
    }

    /// Puts a new mark in the place of the one that was seen, and gives it; `None` if that is gone.
    async fn mark_anew(&self, id: &Bson, seen: ObjectId) -> Result<Option<ObjectId>, String> {
        let new = ObjectId::new();
        let marked = self
            .inner
            .documents
            .update_one(
                mark::still(self.name(), id, seen),
                mark::anew(self.name(), new),
            )
            .write_concern(concern())
            .await
            .map_err(|error| error.to_string())?;
        Ok((marked.matched_count > 0).then_some(new))
    }

    /// Sweeps now and then, as long as the runtime is there, while it works.
    pub(crate) async fn keep_sweeping(self, runtime: Weak<Inner>) {
        loop {
            tokio::time::sleep(self.pause()).await;
            let Some(inner) = runtime.upgrade() else {
                return;
            };
            let works = inner.works.load(Ordering::Relaxed);
            if !works || inner.shared.retired.load(Ordering::Relaxed) {
                continue;
            }
            match self.sweep(&Runtime { inner }).await {
                Ok(0) => {}
                Ok(started) => {
                    tracing::info!(
                        sync = self.name(),
                        started,
                        "a sweep has started fan-outs that were left"
                    );
                }
                Err(error) => tracing::warn!(%error, "a sweep failed; the next one follows"),
            }
        }
    }

    /// Workers that were started together do not sweep together.
    fn pause(&self) -> Duration {
        self.every.mul_f64(0.5 + fastrand::f64())
    }
}
