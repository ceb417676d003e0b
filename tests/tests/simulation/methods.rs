//! The actions of the simulation.

use std::{sync::Arc, time::Duration};

use bson::{Bson, doc};
use milestone_runtime::{
    Method,
    action::{ActionError, Call, Options, RetryPolicy},
    core::record::Phase,
};

use super::{
    ledger::{End, Ledger},
    story::{Ending, Story},
};

/// What a body panics with on purpose.
pub(crate) const PANIC: &str = "a panic of the simulation";

const QUICK: RetryPolicy = RetryPolicy::new()
    .base(Duration::from_millis(100))
    .cap(Duration::from_millis(800));

const TIMEOUT: Duration = Duration::from_millis(600);

const METHODS: [(&str, Options); 9] = [
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
    ("undo-it", Options::idempotent().retry(QUICK)),
];

/// The methods of a process; one that has not all lacks the plain ones.
pub(crate) fn methods(
    story: &Arc<Story>,
    ledger: &Arc<Ledger>,
    process: &str,
    all: bool,
) -> Vec<Method> {
    let wanted = METHODS
        .iter()
        .filter(|(_, options)| all || options.mode.repeatable());
    wanted
        .map(|(name, options)| {
            let (story, ledger) = (Arc::clone(story), Arc::clone(ledger));
            let (process, repeatable) = (process.to_owned(), options.mode.repeatable());
            Method::new(*name, move |call| {
                body(
                    Arc::clone(&story),
                    Arc::clone(&ledger),
                    process.clone(),
                    repeatable,
                    call,
                )
            })
            .options(*options)
        })
        .collect()
}

async fn body(
    story: Arc<Story>,
    ledger: Arc<Ledger>,
    process: String,
    repeatable: bool,
    call: Call,
) -> Result<Bson, ActionError> {
    let context = call.context();
    let (id, action) = (context.milestone_id().to_string(), context.action());
    let (phase, attempt) = (context.phase(), context.attempt());
    let behaviour = story.behaviour(&id, action, phase, attempt, repeatable);
    let entry = ledger.begin(&process, context);
    tokio::time::sleep(behaviour.before).await;
    let failed = |error: ActionError| {
        entry.end(End::Err);
        Err(error)
    };
    match behaviour.end {
        Ending::Fails => return failed(ActionError::new("not yet")),
        Ending::Fatal => return failed(ActionError::fatal("never")),
        Ending::PanicsBefore => panic!("{PANIC}"),
        _ => {}
    }
    entry.effect(repeatable || phase == Phase::Undo);
    tokio::time::sleep(behaviour.after).await;
    match behaviour.end {
        Ending::FailsAfter => return failed(ActionError::new("after all")),
        Ending::PanicsAfter => panic!("{PANIC}"),
        _ => {}
    }
    entry.end(End::Ok);
    Ok(doc! { "of": action, "attempt": attempt }.into())
}
