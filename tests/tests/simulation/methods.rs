//! The actions of the simulation.

use std::{future::pending, sync::Arc, time::Duration};

use bson::{Bson, doc};
use milestone_runtime::{
    Method, Verdict,
    action::{ActionError, Call, Options, RetryPolicy},
    core::record::Phase,
    testing::Process,
};
use tokio::sync::Notify;

use super::{
    ledger::{End, Ledger},
    story::{Behaviour, Ending, Story},
};

/// What a body panics with on purpose.
pub(crate) const PANIC: &str = "a panic of the simulation";

const QUICK: RetryPolicy = RetryPolicy::new()
    .base(Duration::from_millis(100))
    .cap(Duration::from_millis(800));

const TIMEOUT: Duration = Duration::from_millis(600);

const KILLER: &str = "killer";

const METHODS: [(&str, Options); 14] = [
    ("idem", Options::idempotent().retry(QUICK)),
    ("idem-u", Options::idempotent().retry(QUICK).undo("undo-it")),
    ("timed", Options::idempotent().retry(QUICK).timeout(TIMEOUT)),
    ("plain", Options::plain()),
    (
        "plain-r",
        Options::plain().retry(QUICK.max(4)).concurrency(1),
    ),
    ("plain-t", Options::plain().timeout(TIMEOUT)),
    ("plain-u", Options::plain().undo("undo-it")),
    (
        "plain-ru",
        Options::plain().retry(QUICK.max(4)).undo("undo-it"),
    ),
    ("plain-v", Options::plain().verify("verify-it")),
    (
        "plain-tv",
        Options::plain().timeout(TIMEOUT).verify("verify-it"),
    ),
    (
        "plain-uv",
        Options::plain().undo("undo-it").verify("verify-it"),
    ),
    (KILLER, Options::idempotent().retry(QUICK)),
    ("undo-it", Options::idempotent().retry(QUICK)),
    (
        "verify-it",
        Options::idempotent().retry(QUICK.max(3)).timeout(TIMEOUT),
    ),
];

/// A process, as the bodies in it know it.
pub(crate) struct Home {
    pub(crate) name: String,
    pub(crate) process: Process,
    /// Told when a body has killed it.
    pub(crate) fallen: Notify,
}

/// The methods of a process; one that has not all lacks the plain ones.
pub(crate) fn methods(
    story: &Arc<Story>,
    ledger: &Arc<Ledger>,
    home: &Arc<Home>,
    all: bool,
) -> Vec<Method> {
    let wanted = METHODS
        .iter()
        .filter(|(_, options)| all || options.mode.repeatable());
    wanted
        .map(|(name, options)| {
            let (story, ledger) = (Arc::clone(story), Arc::clone(ledger));
            let (home, repeatable) = (Arc::clone(home), options.mode.repeatable());
            let kills = *name == KILLER;
            Method::new(*name, move |call| {
                let context = call.context();
                let (id, action) = (context.milestone_id().to_string(), context.action());
                let (phase, attempt) = (context.phase(), context.attempt());
                let behaviour = if kills {
                    story.killing(&id, action, attempt)
                } else {
                    story.behaviour(&id, action, phase, attempt, repeatable)
                };
                body(
                    Arc::clone(&ledger),
                    Arc::clone(&home),
                    behaviour,
                    repeatable,
                    call,
                )
            })
            .options(*options)
        })
        .collect()
}

async fn body(
    ledger: Arc<Ledger>,
    home: Arc<Home>,
    behaviour: Behaviour,
    repeatable: bool,
    call: Call,
) -> Result<Bson, ActionError> {
    let context = call.context();
    let (phase, attempt) = (context.phase(), context.attempt());
    let entry = ledger.begin(&home.name, context);
    tokio::time::sleep(behaviour.before).await;
    let failed = |error: ActionError| {
        entry.end(End::Err);
        Err(error)
    };
    match behaviour.end {
        Ending::Fails => return failed(ActionError::new("not yet")),
        Ending::Fatal => return failed(ActionError::fatal("never")),
        Ending::PanicsBefore => panic!("{PANIC}"),
        Ending::Hangs => pending().await,
        Ending::Kills => {
            home.process.kill();
            home.fallen.notify_one();
            pending::<()>().await;
        }
        _ => {}
    }
    if phase == Phase::Verify {
        let Some(verdict) = entry.verdict() else {
            return failed(ActionError::new("it may still take effect"));
        };
        tokio::time::sleep(behaviour.after).await;
        entry.end(End::Ok);
        let verdict = if verdict {
            Verdict::Applied(doc! { "of": context.action(), "verified": true })
        } else {
            Verdict::NotApplied
        };
        return bson::serialize_to_bson(&verdict).map_err(ActionError::new);
    }
    entry.effect(repeatable || phase == Phase::Undo);
    tokio::time::sleep(behaviour.after).await;
    match behaviour.end {
        Ending::FailsAfter => return failed(ActionError::new("after all")),
        Ending::PanicsAfter => panic!("{PANIC}"),
        _ => {}
    }
    entry.end(End::Ok);
    Ok(doc! { "of": context.action(), "attempt": attempt, "by": &home.name }.into())
}
