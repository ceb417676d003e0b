//! The protocol of claims, renewals, commits and hand-backs, checked in every state that two workers and a milestone of two actions can
//! reach: with requests, replies and copies of them that come late or never, workers that crash or sleep, and commands.
//!
//! The documents, the patches and the transitions are the real ones; the workers and the network are a model, close to the engine of the
//! runtime and to its stores. What is counted in [`state::Faults`] is bounded, so the states are finite; all else may happen in any order
//! and, but for [`step::Step::TimePasses`], at any time. `docs/architecture.md` tells more.
//!
//! `MILESTONE_PROTOCOL=long` allows more faults, which takes some minutes with `--release`. `--nocapture` shows how many states there
//! are, and the counterexamples of [`broken`] protocols.

mod broken;
mod canonical;
mod pool;
mod rules;
mod scenario;
mod search;
mod state;
mod step;
mod steps;
mod store;
mod tidy;
mod worker;

use std::time::Instant;

use milestone_core::record::Order;
use scenario::{CHAIN, NO_FAULTS, PARALLEL, Scenario, UNDOABLE, cancel, not_applied, pause};
use search::search;
use state::Faults;

/// More than these do not fit into memory.
const MOST: usize = 10_000_000;

/// Searches all states. There must be so many at least, otherwise the model has lost something.
fn check(at_least: usize, scenario: &Scenario) {
    let begun = Instant::now();
    let found = search(scenario, MOST).expect("it fits");
    let (documents, patches) = found.kept;
    println!(
        "{}: {} states, {} steps, {} steps deep, {} at rest, {documents} documents, {patches} patches, {:.1?}",
        scenario.name,
        found.states,
        found.steps,
        found.depth,
        found.at_rest,
        begun.elapsed()
    );
    if let Some(way) = found.counterexample {
        panic!("{way}");
    }
    assert!(found.states >= at_least, "there were more than {at_least}");
    assert!(found.at_rest > 0);
}

fn is_long() -> bool {
    std::env::var("MILESTONE_PROTOCOL").is_ok_and(|how| how == "long")
}

/// The same with more faults.
fn check_long(at_least: usize, scenario: &Scenario) {
    if is_long() {
        check(at_least, scenario);
    }
}

#[test]
fn workers_that_sleep() {
    let faults = Faults {
        freezes: 2,
        ..NO_FAULTS
    };
    let name = "a chain, a worker or the network is slow for two ticks";
    check(60_000, &Scenario::new(name, CHAIN, faults).born_leased());
    let name = "two at once, a worker or the network is slow for two ticks";
    let parallel = Scenario::new(name, PARALLEL, faults);
    check_long(200_000, &parallel.clone().born_leased());
    check_long(200_000, &parallel);
}

#[test]
fn lost_replies() {
    let faults = Faults {
        losses: 2,
        copies: 1,
        ..NO_FAULTS
    };
    let name = "two at once, two losses and a copy";
    check(12_000, &Scenario::new(name, PARALLEL, faults));
    let faults = Faults {
        losses: 1,
        freezes: 1,
        ..NO_FAULTS
    };
    let name = "a chain, a loss and a slow tick";
    check(16_000, &Scenario::new(name, CHAIN, faults).born_leased());
    let name = "two at once, a loss and a slow tick";
    check_long(130_000, &Scenario::new(name, PARALLEL, faults));
}

#[test]
fn crashes() {
    let faults = Faults {
        crashes: 2,
        ..NO_FAULTS
    };
    let name = "two at once, two crashes";
    check(4_000, &Scenario::new(name, PARALLEL, faults));
    let faults = Faults {
        crashes: 1,
        losses: 1,
        failures: 1,
        ..NO_FAULTS
    };
    let name = "two at once, a crash, a loss and an attempt that fails";
    let scenario = Scenario::new(name, PARALLEL, faults);
    check(9_000, &scenario.clone().born_leased());
    check_long(28_000, &scenario);
    let faults = Faults {
        crashes: 1,
        freezes: 2,
        ..NO_FAULTS
    };
    let name = "a chain, a crash and two slow ticks";
    check_long(100_000, &Scenario::new(name, CHAIN, faults).born_leased());
}

#[test]
fn shutdowns() {
    let faults = Faults {
        stops: 1,
        losses: 1,
        failures: 1,
        ..NO_FAULTS
    };
    let name = "two at once, a shutdown, a loss and an attempt that fails";
    let scenario = Scenario::new(name, PARALLEL, faults);
    check(17_000, &scenario.clone().born_leased());
    check_long(39_000, &scenario);
    let faults = Faults {
        stops: 1,
        ..NO_FAULTS
    };
    let name = "a chain, a shutdown and a cancel";
    check(
        4_000,
        &Scenario::new(name, CHAIN, faults).commands([cancel()]),
    );
}

#[test]
fn cancelled() {
    let faults = Faults {
        crashes: 1,
        losses: 1,
        ..NO_FAULTS
    };
    let name = "a chain, a cancel, a crash and a loss";
    let scenario = Scenario::new(name, CHAIN, faults).commands([cancel()]);
    check(6_000, &scenario.clone().born_leased());
    let name = "a chain with an undo, a cancel, a crash and a loss";
    let scenario = Scenario::new(name, UNDOABLE, faults).commands([cancel()]);
    check(6_000, &scenario.clone().born_leased());
    let name = "a chain, a cancel and a slow tick";
    let faults = Faults {
        freezes: 1,
        ..NO_FAULTS
    };
    let scenario = Scenario::new(name, CHAIN, faults).commands([cancel()]);
    check_long(50_000, &scenario.born_leased());
}

#[test]
fn paused_and_resumed() {
    let faults = Faults {
        losses: 1,
        resends: 1,
        ..NO_FAULTS
    };
    let name = "two at once, a pause and a resume, a loss, and a command is sent again";
    let scenario = Scenario::new(name, PARALLEL, faults).commands([pause(), Order::Resume]);
    check(30_000, &scenario.clone().born_leased());
    check_long(110_000, &scenario);
    let name = "a chain, a pause, a resume and a cancel";
    let scenario =
        Scenario::new(name, CHAIN, NO_FAULTS).commands([pause(), Order::Resume, cancel()]);
    check(8_000, &scenario.born_leased());
}

#[test]
fn resolved() {
    let faults = Faults {
        crashes: 1,
        ..NO_FAULTS
    };
    let name = "two at once, a crash, and somebody says that it did not take effect";
    let scenario = Scenario::new(name, PARALLEL, faults).commands([not_applied("b")]);
    check(6_000, &scenario);
    let faults = Faults {
        crashes: 1,
        freezes: 1,
        ..NO_FAULTS
    };
    let name = "a chain, a crash, a slow tick, and somebody says that it did not take effect";
    let scenario = Scenario::new(name, CHAIN, faults).commands([not_applied("a")]);
    check_long(30_000, &scenario.born_leased());
}
