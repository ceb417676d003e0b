//! What the engine is told.

use std::{sync::Arc, time::Duration};

use bson::Bson;
use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};
use tokio::sync::oneshot;

use super::{ended::Ended, held::Held, pass::RunReport};
use crate::{
    action::Failure,
    start::StartError,
    store::{
        Claimed, Commit, Committed, Hint, Insertion, RenewRequest, Renewed, StoreError, WorkerInfo,
    },
};

pub(crate) enum Message {
    /// A new milestone is to be stored.
    Start {
        record: Box<MilestoneRecord>,
        reply: oneshot::Sender<Result<(), StartError>>,
    },
    /// Somebody waits for a milestone to end; `Ok(None)`: it is gone.
    Watch { id: MilestoneId, reply: Watcher },
    /// One pass over all that is due.
    RunOnce { reply: oneshot::Sender<RunReport> },
    /// Work until told otherwise.
    Serve,
    /// Begin nothing new, and tell when nothing is held any more.
    Stop {
        grace: Duration,
        reply: oneshot::Sender<()>,
    },
    /// A body has ended.
    Ended {
        serial: u64,
        result: Result<Bson, Failure>,
    },
    /// A body has taken longer than it may.
    TimedOut { serial: u64 },
    /// A body was asked to stop, since its milestone is being undone, and the grace period is over.
    Overdue { serial: u64 },
    /// A body was asked to stop some time ago.
    Abort { serial: u64 },
    Inserted {
        batch: Vec<Inserting>,
        result: Result<Vec<Insertion>, StoreError>,
    },
    /// Inserts whose fate is unknown are tried again.
    InsertAgain { batch: Vec<Inserting> },
    Claimed {
        for_pass: bool,
        /// Whether a hint has led to it.
        by_hint: bool,
        result: Result<Claimed, StoreError>,
    },
    /// The other workers were read.
    Workers(Result<Vec<WorkerInfo>, StoreError>),
    Committed {
        sent: Vec<Sent>,
        result: Result<Vec<Committed>, StoreError>,
    },
    /// Commits whose fate is unknown are made again.
    CommitAgain { sent: Vec<Sent> },
    Renewed {
        request: RenewRequest,
        round_trip: Duration,
        result: Result<Renewed, StoreError>,
    },
    /// A milestone was read, for its mail or to begin anew after a patch was refused.
    Fetched {
        id: MilestoneId,
        /// The token of the lease under which it was held then.
        token: String,
        anew: bool,
        result: Result<Option<Box<MilestoneRecord>>, StoreError>,
    },
    /// The milestones that somebody waits for were read.
    Watched {
        ids: Vec<MilestoneId>,
        result: Result<Vec<Result<MilestoneRecord, Unreadable>>, StoreError>,
    },
    /// The server has told its time.
    Time {
        round_trip: Duration,
        now: bson::DateTime,
    },
    /// Something of a held milestone is due now.
    Wake { id: MilestoneId },
    /// Methods were registered, which held milestones may wait for.
    Registered,
    /// A command was sent to a milestone, which may be held here.
    Mail { id: MilestoneId },
    /// The database has told that something may be due, or has ended.
    Hint(Hint),
    /// The runtime is gone.
    Close,
}

/// A commit that was sent. By the time of its reply the worker may have lost the milestone and taken it again, and may have sent another one.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: MilestoneId,
    pub(crate) token: String,
    pub(crate) rev: i64,
}

impl Sent {
    pub(crate) fn is(&self, commit: &Commit) -> bool {
        (&self.id, &self.token, self.rev) == (&commit.id, &commit.token, commit.rev)
    }
}

impl From<&Commit> for Sent {
    fn from(commit: &Commit) -> Self {
        Self {
            id: commit.id.clone(),
            token: commit.token.clone(),
            rev: commit.rev,
        }
    }
}

/// Whoever waits for a milestone to end.
pub(crate) type Watcher = oneshot::Sender<Result<Option<Arc<Ended>>, Unreadable>>;

/// A new milestone on its way into the store.
pub(crate) struct Inserting {
    pub(crate) record: Arc<MilestoneRecord>,
    /// What is held once it is stored, if it is born leased.
    pub(super) held: Option<Box<Held>>,
    /// Whoever waits for it; nobody any more once it was told that its fate is unknown.
    pub(crate) reply: Option<oneshot::Sender<Result<(), StartError>>>,
    /// How often it was sent so that it may have arrived.
    pub(crate) sent: u32,
    pub(crate) since: tokio::time::Instant,
}
