//! A state of the whole: what is stored, what each worker has in memory, and what is on the wire.

use milestone_core::machine::Task;

use crate::pool::{Ev, PatchId, RecordId, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The one document.
    pub(crate) stored: RecordId,
    pub(crate) workers: [Worker; 2],
    /// Copies of commands whose sender no longer waits: each may still arrive, or never.
    pub(crate) late: Vec<Copy>,
    /// Commands that the operator has sent so far, each with whether it was delivered.
    pub(crate) sent: Vec<bool>,
    /// How often the body of each plain action has started.
    pub(crate) starts: Vec<u8>,
    /// How many faults may still happen, of each kind.
    pub(crate) left: Faults,
}

/// A number for each kind of fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A process dies, and another one begins in its place.
    pub(crate) crashes: u8,
    /// The lease of a worker that lives ends, since it sleeps or is cut off.
    pub(crate) freezes: u8,
    /// A request or a reply is lost. A request that is lost may still arrive.
    pub(crate) losses: u8,
    /// The network delivers a request twice.
    pub(crate) copies: u8,
    /// An attempt fails.
    pub(crate) failures: u8,
    /// A command is sent again.
    pub(crate) resends: u8,
    /// A worker is told to shut down.
    pub(crate) stops: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Worker {
    pub(crate) held: Option<Held>,
    pub(crate) insert: Option<Insert>,
    pub(crate) claim: Option<Claim>,
    /// One for what is held; another only if its milestone was lost before it came back.
    pub(crate) commits: Vec<CommitCall>,
    pub(crate) renewal: Option<Renewal>,
    /// A milestone that was read for its mail, on its way to the engine, and the token under which it was held then.
    pub(crate) read: Option<(Token, RecordId)>,
    /// Bodies that go on though they were given up.
    pub(crate) disowned: Vec<Task>,
    /// It shuts down: nothing begins.
    pub(crate) stopping: bool,
    /// Its grace period is over.
    pub(crate) cut: bool,
}

/// A milestone that a worker holds, as `engine/held.rs` has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Held {
    /// As it is once everything planned is stored.
    pub(crate) record: RecordId,
    pub(crate) token: Token,
    pub(crate) rev: i64,
    /// The end of the lease, as far as it was acknowledged.
    pub(crate) until: i8,
    pub(crate) in_flight: Option<Commit>,
    pub(crate) flying: Change,
    pub(crate) pending: Change,
    pub(crate) bodies: Vec<Task>,
    /// Attempts that are stored as begun, but whose bodies wait for a renewal.
    pub(crate) waiting: Vec<(Task, i64)>,
}

/// A change that is planned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Change {
    pub(crate) patch: Option<PatchId>,
    pub(crate) events: Vec<Ev>,
    pub(crate) begins: Vec<(Task, i64)>,
}

/// A patch on its way. Its `mail` stands in the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Commit {
    pub(crate) token: Token,
    pub(crate) rev: i64,
    pub(crate) patch: PatchId,
}

/// A call of `Store::commit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CommitCall {
    pub(crate) commit: Commit,
    pub(crate) phase: CommitPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CommitPhase {
    /// The request is on its way.
    OnWire,
    /// The reply did not tell; the store reads what became of it.
    ReadBack,
    /// The answer is on its way to the engine.
    Told(Outcome),
    /// Its fate is unknown; it is sent again after a while.
    Again,
}

/// What became of a patch, as `Committed` of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Done,
    Lost,
    Mail(RecordId),
    Unknown,
}

/// A call of `Store::claim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) taking: Taking,
    pub(crate) phase: ClaimPhase,
}

/// The write that takes a milestone: what was seen of it, how it would be, and the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Taking {
    pub(crate) token: Token,
    pub(crate) seen: RecordId,
    pub(crate) taken: RecordId,
    pub(crate) patch: PatchId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ClaimPhase {
    OnWire,
    ReadBack,
    /// It is taken; the answer is on its way.
    Told,
}

/// A call of `Store::renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Renewal {
    pub(crate) token: Token,
    pub(crate) until: i8,
    pub(crate) phase: RenewalPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RenewalPhase {
    OnWire,
    Told { lost: bool },
}

/// A call of `Store::insert`, of a milestone that is born leased; the request has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Insert {
    pub(crate) record: RecordId,
    pub(crate) phase: InsertPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum InsertPhase {
    /// The answer, that it is inserted, is on its way.
    Told,
    /// The reply was lost, and it is sent again: it exists then.
    Again,
}

/// A request that may still arrive though nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Copy {
    Commit(Commit),
    Claim(Taking),
    Renewal { token: Token, until: i8 },
}

impl Worker {
    /// Whether it has anything to lose.
    pub(crate) fn is_fresh(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn on_wire(&self) -> usize {
        let waiting = |call: &&CommitCall| call.phase == CommitPhase::Again;
        self.commits.len() - self.commits.iter().filter(waiting).count()
    }

    /// Whether it waits for the database.
    pub(crate) fn is_calling(&self) -> bool {
        self.insert.is_some()
            || self.claim.is_some()
            || !self.commits.is_empty()
            || self.renewal.is_some()
            || self.read.is_some()
    }

    /// The tokens that it knows of.
    fn tokens(&self) -> impl Iterator<Item = Token> {
        let held = self.held.iter().map(|held| held.token);
        let claim = self.claim.iter().map(|claim| claim.taking.token);
        let renewal = self.renewal.iter().map(|renewal| renewal.token);
        let commits = self.commits.iter().map(|call| call.commit.token);
        let read = self.read.iter().map(|(token, _)| *token);
        held.chain(claim).chain(renewal).chain(commits).chain(read)
    }

    /// Whether it holds, or is about to learn that it holds, the lease of that token.
    pub(crate) fn owns(&self, token: Token) -> bool {
        self.held.as_ref().is_some_and(|held| held.token == token)
            || self.claim.is_some_and(|claim| claim.taking.token == token)
            || (self.insert.is_some() && token == 0)
    }
}

impl State {
    /// A token that nobody knows. The first one is that of the birth.
    pub(crate) fn new_token(&self, stored: Option<Token>) -> Token {
        let late = self.late.iter().map(|copy| match copy {
            Copy::Commit(commit) => commit.token,
            Copy::Claim(taking) => taking.token,
            Copy::Renewal { token, .. } => *token,
        });
        let known: Vec<Token> = self
            .workers
            .iter()
            .flat_map(Worker::tokens)
            .chain(late)
            .chain(stored)
            .collect();
        (1..=Token::MAX)
            .find(|token| !known.contains(token))
            .expect("there are more tokens than calls")
    }
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        self.patch.is_none()
    }
}

impl Held {
    /// Whether nothing of it runs or is about to.
    pub(crate) fn is_idle(&self) -> bool {
        self.bodies.is_empty()
            && self.waiting.is_empty()
            && self.flying.begins.is_empty()
            && self.pending.begins.is_empty()
    }
}
