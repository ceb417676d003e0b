//! Random graphs and random histories: no reachable state breaks an invariant, patches say exactly what has changed, and every history
//! ends once its actions succeed. `PROPTEST_CASES` sets how many are tried.

mod graph;
mod history;
mod rules;
mod world;

use proptest::prelude::*;

use self::{graph::plans, history::steps, world::World};

proptest! {
    #[test]
    fn no_reachable_state_breaks_an_invariant_and_every_history_ends(plan in plans(), steps in steps()) {
        let mut world = World::new(plan);
        for step in steps {
            world.step(step);
        }
        world.run_to_the_end();
    }
}

/// The generators reach what they are meant to reach; otherwise the property above would prove little.
#[test]
fn histories_reach_every_state() {
    use std::collections::BTreeSet;

    use milestone_core::record::Status;
    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..300 {
        let tree = (plans(), steps()).new_tree(&mut runner).expect("a history");
        let (plan, steps) = tree.current();
        let mut world = World::new(plan);
        for step in steps {
            world.step(step);
            seen.extend(world.seen());
        }
        world.run_to_the_end();
        seen.extend(world.seen());
    }
    let states = Status::ALL.iter().map(|status| status.as_str());
    let others = [
        "hold",
        "losses",
        "undo failed",
        "undo waived",
        "undo done",
        "refused",
        "fork",
        "answers no",
        "mail to a failed one",
        "stale",
        "in doubt while undoing",
    ];
    let missing: Vec<&str> = states
        .chain(others)
        .filter(|name| !seen.contains(name))
        .collect();
    assert!(missing.is_empty(), "no history reaches {missing:?}");
}
