//! The milestones of the crash sweep, for the process that is killed and for the one that recovers.

use std::{sync::Arc, time::Duration};

use milestone_runtime::{
    Method, RuntimeBuilder,
    action::{ActionError, Options},
    core::record::Status,
    dynamic::Action,
};

use crate::{
    journal::{Journal, What},
    ledger::quick,
};

/// A graph, and how it ends.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Whether the process that is killed has started it; else it is there already.
    pub starts: bool,
    /// How it ends, if nobody is killed.
    pub ends: Status,
}

/// All of them.
pub const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "chain",
        starts: true,
        ends: Status::Completed,
    },
    Scenario {
        name: "chain",
        starts: false,
        ends: Status::Completed,
    },
    Scenario {
        name: "fork",
        starts: true,
        ends: Status::Completed,
    },
    Scenario {
        name: "saga",
        starts: true,
        ends: Status::Undone,
    },
    Scenario {
        name: "plain",
        starts: true,
        ends: Status::Completed,
    },
    Scenario {
        name: "plain",
        starts: false,
        ends: Status::Completed,
    },
    Scenario {
        name: "retry",
        starts: true,
        ends: Status::Completed,
    },
];

/// The graph of that name.
///
/// # Panics
/// If there is none.
pub fn graph(name: &str) -> Action {
    match name {
        "chain" => Action::new("one").next([Action::new("two").next(["three"])]),
        "fork" => Action::new("root")
            .next(["left", "right"])
            .done(Action::fork("all").next(["join"])),
        "saga" => Action::new("debit").next([Action::new("reserve").next(["ship"])]),
        "plain" => Action::new("one").next([Action::new("charge").next(["two"])]),
        "retry" => Action::new("one").next([Action::new("flaky").next(["two"])]),
        other => panic!("there is no graph `{other}`"),
    }
}

/// Adds the actions of all graphs, which write what they do into the journal.
pub fn with_actions(mut builder: RuntimeBuilder, journal: &Arc<Journal>) -> RuntimeBuilder {
    let steady = ["one", "two", "three", "root", "left", "right", "join"];
    for name in steady {
        builder = builder.register(method(name, journal, 0).options(quick()));
    }
    let undone = [
        ("debit", "refund", 0),
        ("reserve", "release", 2),
        ("ship", "recall", 0),
    ];
    for (name, undo, fails) in undone {
        let action = if name == "ship" {
            fails_for_good(name, journal)
        } else {
            method(name, journal, 0)
        };
        builder = builder
            .register(action.options(quick().undo(undo)))
            .register(method(undo, journal, fails).options(quick()));
    }
    builder
        .register(method("charge", journal, 0).options(Options::plain()))
        .register(method("flaky", journal, 2).options(quick()))
}

/// An action whose first attempts fail.
fn method(name: &'static str, journal: &Arc<Journal>, fails: i64) -> Method {
    let journal = Arc::clone(journal);
    Method::new(name, move |call| {
        let journal = Arc::clone(&journal);
        async move {
            let cx = call.context();
            let mark = journal.begin(cx)?;
            if cx.attempt() <= fails {
                return Err(ActionError::new(format!("{name} does not work yet")));
            }
            // A kill by another task finds it at work now and then.
            tokio::time::sleep(Duration::from_millis(1)).await;
            journal.note(cx, What::Ended, &mark)?;
            Ok(mark)
        }
    })
}

fn fails_for_good(name: &'static str, journal: &Arc<Journal>) -> Method {
    let journal = Arc::clone(journal);
    Method::new(name, move |call| {
        let journal = Arc::clone(&journal);
        async move {
            journal.begin(call.context())?;
            Err::<(), _>(ActionError::fatal(format!("{name} cannot work")))
        }
    })
}
