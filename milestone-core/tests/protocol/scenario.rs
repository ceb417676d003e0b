//! What is checked: a graph, commands, how much may go wrong, and which rule of the protocol is broken, if one is.

use milestone_core::{
    graph::{Plan, PlannedAction},
    machine::NewMilestone,
    options::Mode,
    record::{Lease, MilestoneRecord, Order},
};

use crate::{
    canonical::{NOW, in_ticks},
    pool::Pool,
    state::{Faults, Insert, InsertPhase, State, Worker},
};

#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) graph: Graph,
    /// What the operator sends, in this order.
    pub(crate) commands: Vec<Order>,
    pub(crate) faults: Faults,
    /// Whether the first worker starts the milestone, so that it is born leased with its first attempts begun.
    pub(crate) born_leased: bool,
    pub(crate) broken: Option<Broken>,
}

/// Two actions.
#[derive(Clone, Copy)]
pub(crate) struct Graph {
    pub(crate) modes: [Mode; 2],
    /// Whether the second one waits for the first one.
    pub(crate) chain: bool,
    /// Whether the first one has an undo.
    pub(crate) undo: bool,
}

/// A protocol with a rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    CommitIgnoresRev,
    CommitIgnoresToken,
    /// Neither the filter of a commit nor the reading back looks at the token.
    NoToken,
    CommitIgnoresMail,
    ClaimIgnoresUntil,
    /// After a lost reply nothing is read; the change is planned anew, with what has come since.
    LostMeansNotDone,
    /// After a lost reply nothing is read; the change counts as done.
    LostMeansDone,
    /// A commit whose fate is unknown is not sent again.
    UnknownIsForgotten,
    /// A command that is sent again is taken for another.
    CommandsNotRecognised,
    RenewalSets,
    StartsWithoutLease,
    /// A body starts before its begin is stored.
    StartsUnstored,
    /// An answer of the store is taken for that of whatever is in flight of the milestone.
    AnswersByIdAlone,
    /// Commands that are read go into a change with a begin that was planned before.
    MailBehindBegin,
    /// An insert that was acknowledged late replaces what the worker has claimed since.
    BornOverClaimed,
}

/// Two actions at once, one of each kind.
pub(crate) const PARALLEL: Graph = Graph {
    modes: [Mode::Idempotent, Mode::Plain],
    chain: false,
    undo: false,
};

/// A plain action, then an idempotent one.
pub(crate) const CHAIN: Graph = Graph {
    modes: [Mode::Plain, Mode::Idempotent],
    chain: true,
    undo: false,
};

/// The same, and the first one can be undone.
pub(crate) const UNDOABLE: Graph = Graph {
    undo: true,
    ..CHAIN
};

pub(crate) const NO_FAULTS: Faults = Faults {
    crashes: 0,
    freezes: 0,
    losses: 0,
    copies: 0,
    failures: 0,
    resends: 0,
    stops: 0,
};

pub(crate) fn cancel() -> Order {
    Order::Cancel {
        reason: "cancelled".to_owned(),
    }
}

pub(crate) fn pause() -> Order {
    Order::Pause {
        reason: "paused".to_owned(),
    }
}

/// Somebody says that an action did not take effect.
pub(crate) fn not_applied(action: &str) -> Order {
    Order::Resolve {
        action: action.to_owned(),
        attempt: None,
        applied: false,
        output: bson::Bson::Null,
    }
}

impl Scenario {
    /// The milestone is stored, and nobody's.
    pub(crate) fn new(name: &'static str, graph: Graph, faults: Faults) -> Self {
        Self {
            name,
            graph,
            commands: Vec::new(),
            faults,
            born_leased: false,
            broken: None,
        }
    }

    pub(crate) fn born_leased(mut self) -> Self {
        self.born_leased = true;
        self
    }

    pub(crate) fn commands(mut self, commands: impl IntoIterator<Item = Order>) -> Self {
        self.commands = commands.into_iter().collect();
        self
    }

    pub(crate) fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    pub(crate) fn without(mut self, broken: Broken) -> Self {
        self.broken = Some(broken);
        self
    }

    /// Whether nothing but a resolve lets the action run twice.
    pub(crate) fn is_plain(&self, action: usize) -> bool {
        self.graph.modes[action] == Mode::Plain
    }

    pub(crate) fn beginning(&self, pool: &mut Pool) -> State {
        let mut record = self.record();
        let mut workers = [Worker::default(), Worker::default()];
        if self.born_leased {
            let lease = Lease {
                owner: "w".to_owned(),
                token: "0".to_owned(),
                since: NOW,
                until: in_ticks(1),
            };
            record.born_leased(lease);
            let born = pool.record(&record);
            let due = pool.due(born);
            let (born, _) = pool
                .advance(born, &crate::pool::Ev::Begin(due))
                .expect("it is due");
            workers[0].insert = Some(Insert {
                record: born,
                phase: InsertPhase::Told,
            });
            record = pool.get(born).clone();
        }
        State {
            stored: pool.record(&record),
            workers,
            late: Vec::new(),
            sent: Vec::new(),
            starts: vec![0; 2],
            left: self.faults,
        }
    }

    fn record(&self) -> MilestoneRecord {
        let mut first = PlannedAction::new("a", self.graph.modes[0]);
        let mut second = PlannedAction::new("b", self.graph.modes[1]);
        if self.graph.undo {
            first.undo = Some("undo-a".to_owned());
        }
        if self.graph.chain {
            second = second.after([0]);
        }
        let plan = Plan::new(vec![first, second]).expect("a valid graph");
        let mut new = NewMilestone::new("Checked", plan);
        new.id = "checked".into();
        MilestoneRecord::new(new, NOW, &milestone_core::limits::Limits::new()).expect("a record")
    }
}
