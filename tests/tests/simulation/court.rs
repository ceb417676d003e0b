//! The database of the simulation: it carries out a call at once, and judges what the call has done to each document.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bson::{DateTime, Document};
use milestone_core::machine;
use milestone_runtime::{
    core::record::{Command, MilestoneId, MilestoneRecord, Unreadable},
    store::{
        ClaimRequest, Claimed, Commit, Committed, Insertion, RenewRequest, Renewed, Sent, Store,
        StoreError,
    },
    testing::MemoryStore,
};

use super::{log::Log, rules};

/// More calls than this no seed needs: something goes round in circles.
const MOST_CALLS: u64 = 60_000;

pub(crate) struct Court {
    log: Arc<Log>,
    memory: Arc<MemoryStore>,
    /// What carries out the calls: the memory, or something broken in front of it.
    store: Arc<dyn Store>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    calls: u64,
    /// What was there after the last write.
    known: BTreeMap<MilestoneId, (Document, MilestoneRecord)>,
    /// Commands that were delivered.
    delivered: Vec<(MilestoneId, String)>,
    /// Results of attempts that were sent as commands.
    late: Vec<(MilestoneId, Command)>,
    /// How often a milestone was parked.
    parked: usize,
}

/// What was written, and what was answered.
pub(crate) enum Write<'a> {
    Insert,
    Claim(&'a ClaimRequest),
    Commit(&'a Commit, &'a Committed),
    Renew(&'a RenewRequest, bool),
    Send(&'a Command, Sent),
}

impl Court {
    pub(crate) fn new(log: Arc<Log>, memory: Arc<MemoryStore>, store: Arc<dyn Store>) -> Self {
        Self {
            log,
            memory,
            store,
            inner: Mutex::default(),
        }
    }

    pub(crate) fn time(&self) -> DateTime {
        self.memory.time()
    }

    pub(crate) fn record(&self, id: &MilestoneId) -> Option<MilestoneRecord> {
        let inner = self.lock();
        inner.known.get(id).map(|(_, record)| record.clone())
    }

    /// All milestones.
    pub(crate) fn records(&self) -> Vec<MilestoneRecord> {
        let inner = self.lock();
        inner
            .known
            .values()
            .map(|(_, record)| record.clone())
            .collect()
    }

    pub(crate) fn delivered(&self) -> Vec<(MilestoneId, String)> {
        self.lock().delivered.clone()
    }

    pub(crate) fn late(&self) -> Vec<(MilestoneId, Command)> {
        self.lock().late.clone()
    }

    pub(crate) fn parked(&self) -> usize {
        self.lock().parked
    }

    pub(crate) async fn insert(
        &self,
        who: &str,
        batch: Vec<Arc<MilestoneRecord>>,
    ) -> Result<Vec<Insertion>, StoreError> {
        self.count().await;
        let told = self.store.insert(batch.clone()).await?;
        for (record, told) in batch.iter().zip(&told) {
            let told = match told {
                Insertion::Inserted => "inserted",
                Insertion::Exists(_) => "exists",
                Insertion::Refused(_) => "refused",
            };
            self.log
                .note(who, format_args!("insert {}: {told}", record.id));
            self.judge(&record.id, &Write::Insert);
        }
        Ok(told)
    }

    pub(crate) async fn claim(
        &self,
        who: &str,
        request: ClaimRequest,
    ) -> Result<Claimed, StoreError> {
        self.count().await;
        let claimed = self.store.claim(request.clone()).await?;
        for record in &claimed.records {
            self.log.note(
                who,
                format_args!(
                    "claim {} epoch {} token {}",
                    record.id,
                    record.epoch,
                    self.log.token(&request.token)
                ),
            );
            self.judge(&record.id, &Write::Claim(&request));
        }
        Ok(claimed)
    }

    pub(crate) async fn commit(
        &self,
        who: &str,
        batch: Vec<Commit>,
    ) -> Result<Vec<Committed>, StoreError> {
        self.count().await;
        let told = self.store.commit(batch.clone()).await?;
        for (commit, told) in batch.iter().zip(&told) {
            let answer = match told {
                Committed::Done => "done",
                Committed::Lost => "lost",
                Committed::Mail(_) => "mail",
                Committed::Unknown(_) => "unknown",
                Committed::Refused(_) => "refused",
            };
            self.log.note(
                who,
                format_args!(
                    "commit {} rev {} token {}: {answer}",
                    commit.id,
                    commit.rev,
                    self.log.token(&commit.token)
                ),
            );
            self.judge(&commit.id, &Write::Commit(commit, told));
        }
        Ok(told)
    }

    pub(crate) async fn renew(
        &self,
        who: &str,
        request: RenewRequest,
    ) -> Result<Renewed, StoreError> {
        self.count().await;
        let renewed = self.store.renew(request.clone()).await?;
        for (id, _) in &request.holds {
            let lost = renewed.lost.contains(id);
            let lost_word = if lost { "lost" } else { "renewed" };
            self.log.note(who, format_args!("renew {id}: {lost_word}"));
            self.judge(id, &Write::Renew(&request, lost));
        }
        Ok(renewed)
    }

    pub(crate) async fn send(
        &self,
        who: &str,
        id: MilestoneId,
        command: Command,
    ) -> Result<Sent, StoreError> {
        self.count().await;
        let sent = self.store.send(id.clone(), command.clone()).await?;
        self.log.note(
            who,
            format_args!("send {} to {id}: {sent:?}", command.order.name()),
        );
        if rules::is_late(&command) {
            let record = self.record(&id);
            if let Some(wrong) = record.and_then(|record| rules::late(&record, &command)) {
                self.log.wrong(format_args!("{id}: {wrong}"));
            }
            self.lock().late.push((id.clone(), command.clone()));
        }
        if sent == Sent::Delivered {
            self.lock().delivered.push((id.clone(), command.id.clone()));
        }
        self.judge(&id, &Write::Send(&command, sent));
        Ok(sent)
    }

    pub(crate) async fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> Result<Vec<Result<MilestoneRecord, Unreadable>>, StoreError> {
        self.count().await;
        self.store.get(ids).await
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// A call that nobody judges. Where things go round in circles, this is where they end.
    pub(crate) async fn count(&self) {
        let calls = {
            let mut inner = self.lock();
            inner.calls += 1;
            inner.calls
        };
        if calls > MOST_CALLS {
            self.log
                .wrong(format_args!("there were {calls} calls of the store"));
            std::future::pending::<()>().await;
        }
    }

    fn judge(&self, id: &MilestoneId, write: &Write<'_>) {
        let Some(document) = self.memory.document(id) else {
            return;
        };
        let mut inner = self.lock();
        let known = inner.known.get(id);
        if let Some((before, record)) = known
            && *before == document
        {
            if let Some(wrong) = rules::nothing(record, write) {
                self.log.wrong(format_args!("{id}: {wrong}"));
            }
            return;
        }
        let record = match MilestoneRecord::from_document(document.clone()) {
            Ok(record) => record,
            Err(unreadable) => return self.log.wrong(unreadable),
        };
        if rules::is_parked(&record) && !known.is_some_and(|(_, before)| rules::is_parked(before)) {
            inner.parked += 1;
        }
        let known = inner.known.get(id);
        for violation in machine::check(&record) {
            self.log.wrong(violation);
        }
        for wrong in rules::step(
            known.map(|(_, record)| record),
            &record,
            write,
            self.memory.time(),
        ) {
            self.log.wrong(format_args!("{id}: {wrong}"));
        }
        inner.known.insert(id.clone(), (document, record));
    }

    /// Whether the database holds what the judged writes have left, and nothing else.
    pub(crate) fn check_all(&self) {
        for (id, (document, _)) in &self.lock().known {
            if self.memory.document(id).as_ref() != Some(document) {
                self.log.wrong(format_args!(
                    "{id} was changed by a call that is not for it"
                ));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
