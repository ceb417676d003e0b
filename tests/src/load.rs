//! Work for tests that break things: milestones of several kinds, whose actions write what they do into a journal and into a bank.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bson::{Document, doc};
use milestone_examples::bank::Bank;
use milestone_runtime::{
    Method, Runtime, RuntimeBuilder,
    action::{ActionError, Call, Options, RetryPolicy},
    core::record::Status,
    dynamic::Action,
};

use crate::journal::{Journal, What};

/// What the actions work with.
pub struct Load {
    /// Where they write what they do.
    pub journal: Journal,
    /// Where they book; actions of other kinds than transfers need none.
    pub bank: Option<Bank>,
    /// Where a batch starts its parts.
    pub runtime: OnceLock<Runtime>,
}

/// A kind of milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Takes an amount from one account and puts it on another.
    Transfer,
    /// A plain action between two idempotent ones.
    Charge,
    /// Five actions, of which the fourth fails for good: what the others did is undone, one of them at the fourth try.
    Saga,
    /// The second of three actions fails some times.
    Retry,
    /// Eight actions side by side.
    Fan,
    /// Starts other milestones.
    Batch,
}

/// How many milestones a batch starts.
pub const PARTS: usize = 5;

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Transfer,
        Self::Charge,
        Self::Saga,
        Self::Retry,
        Self::Fan,
        Self::Batch,
    ];

    /// The name of its type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transfer => "Transfer",
            Self::Charge => "Charge",
            Self::Saga => "Saga",
            Self::Retry => "Retry",
            Self::Fan => "Fan",
            Self::Batch => "Batch",
        }
    }

    /// How it ends.
    pub const fn ends(self) -> Status {
        match self {
            Self::Saga => Status::Undone,
            _ => Status::Completed,
        }
    }

    /// Its graph. Whoever starts it need not have the actions.
    pub fn graph(self) -> Action {
        let again = |name: &str| Action::new(name).idempotent();
        match self {
            Self::Transfer => again("debit").undo("refund").next([again("credit")]),
            Self::Charge => again("prepare").next([Action::new("charge").next([again("receipt")])]),
            Self::Saga => SAGA
                .into_iter()
                .rev()
                .fold(again("celebrate"), |rest, name| {
                    again(name).undo(format!("un{name}")).next([rest])
                }),
            Self::Retry => again("fetch").next([again("flaky").next([again("store")])]),
            Self::Fan => again("split")
                .next(LEAVES.map(again))
                .done(again("collect")),
            Self::Batch => again("spread"),
        }
    }
}

const SAGA: [&str; 4] = ["train", "hotel", "car", "pay"];
const ROOTS: [&str; 3] = ["prepare", "fetch", "split"];
const LEAVES: [&str; 8] = [
    "leaf-1", "leaf-2", "leaf-3", "leaf-4", "leaf-5", "leaf-6", "leaf-7", "leaf-8",
];

/// The ids of the milestones that a batch starts.
pub fn parts_of(batch: &str) -> Vec<String> {
    (0..PARTS).map(|part| format!("{batch}.{part}")).collect()
}

/// The parameters of a milestone: how long an action takes, how often it fails, and what a transfer moves.
pub fn parameters(pace: Duration, fails: i64, from: &str, to: &str, amount: i64) -> Document {
    let pace = i64::try_from(pace.as_millis()).unwrap_or(i64::MAX);
    doc! { "pace": pace, "fails": fails, "from": from, "to": to, "amount": amount }
}

/// Parameters of a milestone that moves nothing.
pub fn paced(pace: Duration) -> Document {
    parameters(pace, 2, "", "", 0)
}

/// Parameters of a milestone that moves nothing, the first attempt of whose first action takes longer than what follows.
pub fn slow_at_first(first: Duration, pace: Duration) -> Document {
    let mut parameters = paced(pace);
    let first = i64::try_from(first.as_millis()).unwrap_or(i64::MAX);
    parameters.insert("first", first);
    parameters
}

/// An idempotent action that is retried soon.
const SOON: Options = Options::idempotent().retry(
    RetryPolicy::new()
        .base(Duration::from_millis(50))
        .cap(Duration::from_millis(500)),
);

/// Adds the actions of all kinds.
pub fn with_actions(mut builder: RuntimeBuilder, load: &Arc<Load>) -> RuntimeBuilder {
    for name in [
        "debit",
        "refund",
        "credit",
        "prepare",
        "receipt",
        "fetch",
        "flaky",
        "store",
        "split",
        "collect",
        "spread",
        "celebrate",
    ] {
        builder = builder.register(method(name, load).options(SOON));
    }
    for name in LEAVES.into_iter().chain(SAGA) {
        builder = builder.register(method(name, load).options(SOON));
    }
    for name in ["untrain", "unhotel", "uncar", "unpay"] {
        builder = builder.register(method(name, load).options(SOON));
    }
    builder.register(method("charge", load).options(Options::plain()))
}

fn method(name: &'static str, load: &Arc<Load>) -> Method {
    let load = Arc::clone(load);
    Method::new(name, move |call| {
        let load = Arc::clone(&load);
        async move { run(name, &load, &call).await }
    })
}

/// What every action does: it says that it begins, takes its time, has its effect, and says so.
async fn run(method: &str, load: &Load, call: &Call) -> Result<String, ActionError> {
    let cx = call.context();
    let mark = load.journal.begin(cx)?;
    let given: Document = bson::deserialize_from_bson(call.parameters().clone())?;
    let is_first = cx.attempt() == 1 && ROOTS.contains(&method);
    let first = given.get_i64("first").ok().filter(|_| is_first);
    let pace = first.unwrap_or_else(|| given.get_i64("pace").unwrap_or(0));
    let pace = u64::try_from(pace).unwrap_or(0);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(pace)) => {}
        () = cx.cancelled() => {
            load.journal.note(cx, What::Cancelled, &mark)?;
            return Err(ActionError::new("it was asked to stop"));
        }
    }
    let fails = match method {
        "flaky" => given.get_i64("fails").unwrap_or(0),
        "unhotel" => 3,
        _ => 0,
    };
    if cx.attempt() <= fails {
        return Err(ActionError::new(format!("{method} does not work yet")));
    }
    match method {
        "pay" => return Err(ActionError::fatal("there is no money")),
        "spread" => spread(load, call).await?,
        "debit" | "credit" | "refund" => book(method, load, call, &given).await?,
        _ => {}
    }
    load.journal.note(cx, What::Ended, &mark)?;
    Ok(mark)
}

async fn book(method: &str, load: &Load, call: &Call, given: &Document) -> Result<(), ActionError> {
    let cx = call.context();
    let bank = load.bank.as_ref().ok_or("a transfer needs a bank")?;
    let amount = given.get_i64("amount").map_err(ActionError::fatal)?;
    let account = |name| given.get_str(name).map_err(ActionError::fatal);
    match method {
        "debit" => {
            bank.book(&cx.idempotency_key(), account("from")?, -amount)
                .await?;
        }
        "credit" => {
            bank.book(&cx.idempotency_key(), account("to")?, amount)
                .await?;
        }
        _ => {
            bank.cancel(&cx.key_of("debit"), account("from")?, -amount)
                .await?;
        }
    }
    Ok(())
}

/// The parts have ids, so those that were started by an attempt before are not started again.
async fn spread(load: &Load, call: &Call) -> Result<(), ActionError> {
    let runtime = load.runtime.get().ok_or("a batch needs a runtime")?;
    for id in parts_of(&call.context().milestone_id().to_string()) {
        let part = runtime.start(Kind::Retry.name(), Kind::Retry.graph(), call.parameters());
        part.id(id).await.map_err(ActionError::new)?;
    }
    Ok(())
}
