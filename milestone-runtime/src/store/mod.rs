//! What the runtime needs of a database. Two stores come with it; the conformance suite (feature `testing`) tells whether a third one
//! keeps the promises.
//!
//! Everything is one-document atomic. A store decides nothing: patches come from the state machine, and time comes in with the call,
//! in estimated server time.

pub(crate) mod document;
mod error;
mod filter;
pub mod mongodb;
mod share;
pub mod sqlite;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use bson::DateTime;
use futures_util::Stream;
use milestone_core::{
    machine::Begins,
    patch::Patch,
    record::{Command, MilestoneId, MilestoneRecord, Status, Unreadable},
};
use serde::{Deserialize, Serialize};

pub use error::StoreError;
pub use filter::{Filter, Listed, Page, Tally};
pub use share::Share;

/// What a call of a store gives.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A database that holds milestones. All its calls are made on the runtime's private executor and are never dropped half-way.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Connects, checks that the server is one that can be used, and makes what is missing (collections, tables, indexes). It is safe
    /// beside workers that run, and may be called again.
    fn open(&self) -> StoreFuture<'_, ServerInfo>;

    /// The names of what is not there yet of all that [`Store::open`] makes; it is asked before that, and makes nothing itself. A
    /// collection that is not there is among them by its own name.
    fn lacks(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// The time of the server.
    fn now(&self) -> StoreFuture<'_, DateTime>;

    /// Stores new milestones; one that cannot be stored does not hinder the others. The result has one item for each, in order.
    ///
    /// An error means that the fate of all of them is unknown.
    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>>;

    /// Takes milestones that are due and that the worker can move on, each for itself: no milestone is taken by two.
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Claimed>;

    /// Carries out patches, each for itself, and says what became of each, in order. It may be called again with the same commit, which
    /// then is done once.
    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>>;

    /// Renews leases, and tells which are lost and which milestones have had mail. A lease that ended but that nobody took is revived.
    /// A late copy never shortens a lease.
    fn renew(&self, request: RenewRequest) -> StoreFuture<'_, Renewed>;

    /// Puts a command into the inbox of a milestone, once for each id of a command, in the states that accept it.
    fn send(&self, id: MilestoneId, command: Command) -> StoreFuture<'_, Sent>;

    /// Reads milestones, with majority where there is one. Those that do not exist are left out.
    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>>;

    /// Reads milestones page by page, by `_id`, the highest first.
    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed>;

    /// Counts milestones.
    fn count(&self, filter: Filter) -> StoreFuture<'_, u64>;

    /// Counts milestones by type and state, in no order. Where the server cannot, they are read one by one.
    fn tally(&self, filter: Filter) -> StoreFuture<'_, Vec<Tally>> {
        Box::pin(filter::tally(self, filter))
    }

    /// Removes a milestone, whatever its state, and tells whether it was there. A worker that holds it drops it at its next write.
    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool>;

    /// Hints that something may be due or may have ended, or `None` where the server gives none. Hints only shorten a wait, so they may
    /// be lost, doubled or late; the stream may end at any time.
    /// What is not wanted need not be left out, but costs the server and the worker time.
    fn changes(&self, wanted: Wanted) -> StoreFuture<'_, Option<Hints>>;

    /// How it wants new milestones and patches when there are many. One that has the wire to itself goes at once,
    /// whatever this says; beside a large command a small one waits for it.
    fn batching(&self) -> Batching {
        Batching::default()
    }

    /// Tells people that a worker lives, and what it can do.
    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()>;

    /// Removes the entry of a worker that ends in order.
    fn retire(&self, worker: String) -> StoreFuture<'_, ()>;

    /// The store, if it is MongoDB: what the toolkit ([`mongo`](crate::mongo)) needs is there only.
    fn mongodb(&self) -> Option<&mongodb::MongoStore> {
        None
    }

    /// The workers that have told that they live, dead ones too until somebody removes them.
    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>>;
}

/// How a store wants many writes of one kind: while so many commands are on the wire, the next ones collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batching {
    /// How many commands of one kind are on the wire at once.
    pub commands: usize,
    /// How many writes one command holds at the most.
    pub writes: usize,
}

impl Batching {
    /// So many commands, with so many writes each.
    pub const fn new(commands: usize, writes: usize) -> Self {
        Self { commands, writes }
    }
}

impl Default for Batching {
    /// Two commands of up to 500 writes: what a MongoDB server does best with, see `docs/performance.md`.
    fn default() -> Self {
        Self::new(2, 500)
    }
}

/// Which hints are of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those of what is due: to a worker.
    pub due: bool,
    /// Those of what has ended: where somebody waits for what others end.
    pub ended: bool,
}

impl Wanted {
    /// All of them.
    pub const ALL: Self = Self {
        due: true,
        ended: true,
    };
}

/// A hint of a database, see [`Store::changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Something that nobody holds is due from then on.
    Due(DateTime),
    /// That milestone has ended.
    Ended(MilestoneId),
    /// Something has changed, and nobody knows what: it may be either.
    Changed,
}

/// A stream of hints.
pub type Hints = Pin<Box<dyn Stream<Item = Hint> + Send>>;

/// What is known of a database server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// What it is, for people, such as `MongoDB 8.2.0, replica set rs0, at localhost:27017`.
    pub description: String,
    /// Its time.
    pub now: DateTime,
    /// Whether it has transactions of several documents.
    pub transactions: bool,
}

impl ServerInfo {
    /// What is known of a server.
    pub fn new(description: impl Into<String>, now: DateTime) -> Self {
        Self {
            description: description.into(),
            now,
            transactions: false,
        }
    }

    /// Says that it has transactions of several documents.
    #[must_use]
    pub fn with_transactions(mut self) -> Self {
        self.transactions = true;
        self
    }
}

/// What became of a new milestone.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a batch of them is short-lived")]
pub enum Insertion {
    /// It is stored.
    Inserted,
    /// One with its id exists, and is left as it is.
    Exists(Result<MilestoneRecord, Unreadable>),
    /// It was refused for good and is not stored.
    Refused(Arc<StoreError>),
}

/// Which milestones a worker wants.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The worker.
    pub owner: String,
    /// The new token, random.
    pub token: String,
    /// How many at the most.
    pub limit: usize,
    /// What is due by then is due.
    pub now: DateTime,
    /// When the leases end that are given.
    pub until: DateTime,
    /// The queues to look into.
    pub queues: Vec<String>,
    /// The methods that the worker has.
    pub methods: Vec<String>,
    /// Leases of others that ended before this time may be taken; `None`: none, only what nobody holds.
    pub expired_before: Option<DateTime>,
    /// Milestones to leave alone.
    pub except: Vec<MilestoneId>,
    /// What to take first, where several workers may want the same. A store in which none gets in another's way need not heed it.
    pub share: Share,
    /// What the claim begins of each milestone, in the same write; `None`: nothing. See [`milestone_core::machine::claim`].
    pub begins: Option<Begins>,
}

/// What was taken.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// The milestones, each with its new epoch, `rev` and lease.
    pub records: Vec<MilestoneRecord>,
    /// How many were seen as due but taken by another in between.
    pub missed: usize,
    /// Those that cannot be read; they were left as they are.
    pub unreadable: Vec<(MilestoneId, Unreadable)>,
    /// Those that were seen as due and left to the workers in whose share they are.
    pub left: Vec<MilestoneId>,
}

/// A patch on its way.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The milestone.
    pub id: MilestoneId,
    /// The token of the lease under which it is made.
    pub token: String,
    /// The `rev` that it is made for; the milestone then has the next one.
    pub rev: i64,
    /// The change.
    pub patch: Arc<Patch>,
}

/// What became of a patch.
#[derive(Clone, Debug)]
pub enum Committed {
    /// It is stored, now or since an earlier call.
    Done,
    /// The lease is another's, or the milestone is gone: nothing was changed.
    Lost,
    /// Nothing was changed, since more commands have come than the patch knows of: here is the milestone with them.
    Mail(Box<MilestoneRecord>),
    /// Nobody knows; the same commit must be made again.
    Unknown(Arc<StoreError>),
    /// The server refuses it for good, as it is too large or too deep.
    Refused(Arc<StoreError>),
}

/// Which leases are to be renewed.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// The worker.
    pub owner: String,
    /// The milestones and the tokens of their leases.
    pub holds: Vec<(MilestoneId, String)>,
    /// When the leases end from now on.
    pub until: DateTime,
}

/// What became of a renewal.
#[derive(Clone, Debug)]
pub struct Renewed {
    /// The leases that are another's now, or whose milestone is gone.
    pub lost: Vec<MilestoneId>,
    /// The leases that are still the worker's and were not renewed, since the database does not let their documents be changed: each ends when
    /// it was to end.
    pub unrenewed: Vec<MilestoneId>,
    /// How many commands have ever come, for each of the others that ever had any.
    pub mail: Vec<(MilestoneId, i64)>,
    /// The time of the server.
    pub now: DateTime,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the inbox, or was carried out already.
    Delivered,
    /// There is no such milestone.
    NotFound,
    /// The milestone's state does not accept it.
    Refused(Status),
    /// The inbox is full.
    Full,
}

/// A worker, as it tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerInfo {
    /// Its identity, new at each start.
    #[serde(rename = "_id")]
    pub id: String,
    /// Its name, host and process.
    pub name: String,
    /// The methods that it has.
    pub methods: Vec<String>,
    /// The queues that it works on.
    pub queues: Vec<String>,
    /// When it began.
    pub since: DateTime,
    /// When it last told.
    pub seen_at: DateTime,
    /// When it will have told again, if it lives.
    pub next_at: DateTime,
}

impl WorkerInfo {
    /// Whether it lives at that time, as far as is known: one that died is held to be alive until it has missed the next time that it
    /// wanted to tell, and half of such a period more.
    #[must_use]
    pub fn lives_at(&self, now: DateTime) -> bool {
        let (seen, next) = (
            self.seen_at.timestamp_millis(),
            self.next_at.timestamp_millis(),
        );
        let patience = next.saturating_sub(seen).max(0) / 2;
        now.timestamp_millis() <= next.saturating_add(patience)
    }
}

/// How long a store may take to find a server before it gives up, where the URI does not say.
pub const DEFAULT_SERVER_TIMEOUT: Duration = Duration::from_secs(30);
