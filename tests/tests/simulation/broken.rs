//! Stores that are broken on purpose, each in one way: the simulation must find every one of them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bson::{Bson, DateTime, Document};
use milestone_runtime::{
    core::record::{Command, MilestoneId, MilestoneRecord, Unreadable},
    store::{
        ClaimRequest, Claimed, Commit, Committed, Filter, Hints, Insertion, Listed, Page,
        RenewRequest, Renewed, Sent, ServerInfo, Store, StoreFuture, Wanted, WorkerInfo,
    },
    testing::MemoryStore,
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A patch is carried out whatever the `rev` is.
    IgnoresRev,
    /// A patch is carried out whoever holds the milestone, and whatever its `rev` is.
    IgnoresFence,
    /// A patch is carried out though a command has come that it does not know of.
    IgnoresMail,
    /// Some patches are said to be done, and are not.
    ForgetsCommits,
    /// A patch that was carried out by an earlier copy is said to be lost.
    TakesRepeatedForLost,
    /// A command that came before is put into the inbox again.
    DeliversTwice,
    /// A late copy of a renewal cuts the lease.
    CutsLeases,
    /// A renewal prolongs the lease of another worker.
    RenewsOthers,
    /// A claim takes what is held, too.
    TakesWhatIsHeld,
    /// A new milestone takes the place of one with its id.
    InsertsTwice,
}

pub(crate) const FLAWS: [Flaw; 10] = [
    Flaw::IgnoresRev,
    Flaw::IgnoresFence,
    Flaw::IgnoresMail,
    Flaw::ForgetsCommits,
    Flaw::TakesRepeatedForLost,
    Flaw::DeliversTwice,
    Flaw::CutsLeases,
    Flaw::RenewsOthers,
    Flaw::TakesWhatIsHeld,
    Flaw::InsertsTwice,
];

pub(crate) struct Broken {
    flaw: Flaw,
    memory: Arc<MemoryStore>,
    commits: AtomicU64,
}

impl Broken {
    pub(crate) fn new(flaw: Flaw, memory: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            flaw,
            memory,
            commits: AtomicU64::new(0),
        })
    }

    async fn commit_one(&self, mut commit: Commit) -> Committed {
        let document = self.memory.document(&commit.id).unwrap_or_default();
        let token = token(&document).unwrap_or_default().to_owned();
        let rev = document.get_i64("rev").unwrap_or_default();
        let mail = document.get_i64("mail").unwrap_or_default();
        match self.flaw {
            Flaw::IgnoresRev if token == commit.token => commit.rev = rev,
            Flaw::IgnoresFence if !token.is_empty() => (commit.token, commit.rev) = (token, rev),
            Flaw::ForgetsCommits
                if self
                    .commits
                    .fetch_add(1, Ordering::Relaxed)
                    .is_multiple_of(50) =>
            {
                return Committed::Done;
            }
            Flaw::TakesRepeatedForLost if rev != commit.rev => return Committed::Lost,
            Flaw::IgnoresMail if commit.patch.mail().is_some_and(|known| known != mail) => {
                let known = commit.patch.mail().unwrap_or_default();
                self.change(&commit.id, |document| {
                    document.insert("mail", known);
                });
                let told = self.memory.commit(vec![commit.clone()]).await;
                self.change(&commit.id, |document| {
                    document.insert("mail", mail);
                });
                return only(told);
            }
            _ => {}
        }
        only(self.memory.commit(vec![commit]).await)
    }

    fn change(&self, id: &MilestoneId, change: impl FnOnce(&mut Document)) {
        if let Some(mut document) = self.memory.document(id) {
            change(&mut document);
            self.memory.plant(document).expect("it has an id");
        }
    }

    fn renew_wrongly(&self, request: &mut RenewRequest) {
        for (id, held) in &mut request.holds {
            let document = self.memory.document(id).unwrap_or_default();
            let Some(token) = token(&document).map(str::to_owned) else {
                continue;
            };
            match self.flaw {
                Flaw::RenewsOthers => *held = token,
                Flaw::CutsLeases if token == *held => self.change(id, |document| {
                    let lease = document.get_document_mut("lease").expect("it is held");
                    lease.insert("until", request.until);
                }),
                _ => {}
            }
        }
    }
}

fn only<E: fmt::Debug>(told: Result<Vec<Committed>, E>) -> Committed {
    let mut told = told.expect("the memory answers");
    told.pop().expect("one answer to one commit")
}

fn token(document: &Document) -> Option<&str> {
    document.get("lease")?.as_document()?.get_str("token").ok()
}

impl Store for Broken {
    fn open(&self) -> StoreFuture<'_, ServerInfo> {
        self.memory.open()
    }

    fn now(&self) -> StoreFuture<'_, DateTime> {
        self.memory.now()
    }

    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>> {
        if self.flaw == Flaw::InsertsTwice {
            for record in &batch {
                let document = record.to_document().expect("a record is a document");
                self.memory.plant(document).expect("it has an id");
            }
            let told = batch.iter().map(|_| Insertion::Inserted).collect();
            return Box::pin(async { Ok(told) });
        }
        self.memory.insert(batch)
    }

    fn claim(&self, mut request: ClaimRequest) -> StoreFuture<'_, Claimed> {
        if self.flaw == Flaw::TakesWhatIsHeld {
            request.expired_before = Some(DateTime::MAX);
            request.now = DateTime::MAX;
        }
        self.memory.claim(request)
    }

    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>> {
        Box::pin(async move {
            let mut told = Vec::new();
            for commit in batch {
                told.push(self.commit_one(commit).await);
            }
            Ok(told)
        })
    }

    fn renew(&self, mut request: RenewRequest) -> StoreFuture<'_, Renewed> {
        self.renew_wrongly(&mut request);
        self.memory.renew(request)
    }

    fn send(&self, id: MilestoneId, mut command: Command) -> StoreFuture<'_, Sent> {
        let document = self.memory.document(&id).unwrap_or_default();
        let known = ["inbox", "answers"].iter().any(|list| {
            let list = document.get_array(list).into_iter().flatten();
            list.filter_map(Bson::as_document)
                .any(|known| known.get_str("id").ok() == Some(&command.id))
        });
        if known && self.flaw == Flaw::DeliversTwice {
            command.id.push('+');
        }
        self.memory.send(id, command)
    }

    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>> {
        self.memory.get(ids)
    }

    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed> {
        self.memory.list(filter, page)
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, u64> {
        self.memory.count(filter)
    }

    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool> {
        self.memory.remove(id)
    }

    fn changes(&self, wanted: Wanted) -> StoreFuture<'_, Option<Hints>> {
        self.memory.changes(wanted)
    }

    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()> {
        self.memory.heartbeat(worker)
    }

    fn retire(&self, worker: String) -> StoreFuture<'_, ()> {
        self.memory.retire(worker)
    }

    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>> {
        self.memory.workers()
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broken").field(&self.flaw).finish()
    }
}
