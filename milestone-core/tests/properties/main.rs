//! Random graphs and random histories: no reachable state breaks an invariant, patches say exactly what has changed, and every history
//! ends once its actions succeed. `PROPTEST_CASES` sets how many are tried.

mod graph;
mod history;
mod rules;
mod world;

use std::{collections::BTreeSet, time::Duration};

use milestone_core::record::Status;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use self::{
    graph::plans,
    history::steps,
    world::{Move, World},
};

proptest! {
    #[test]
    fn no_reachable_state_breaks_an_invariant_and_every_history_ends(plan in plans(), deadline in deadlines(), steps in steps()) {
        let mut world = World::new(plan, deadline);
        for step in steps {
            world.step(step);
        }
        world.run_to_the_end();
    }
}

/// Most have none; some pass in the middle of a history.
fn deadlines() -> impl Strategy<Value = Option<Duration>> {
    prop::option::weighted(0.25, (0..3000_u64).prop_map(Duration::from_secs))
}

/// The moves that `docs/states.md` draws: lines `a --> b: why` of the diagram under each heading.
fn drawn() -> BTreeSet<Move> {
    let page = include_str!("../../../docs/states.md");
    let mut what = "";
    let mut drawn = BTreeSet::new();
    for line in page.lines() {
        what = match line {
            "## A milestone" => "milestone",
            "## An action" => "action",
            "## A verify" => "verify",
            "## An undo" => "undo",
            _ => what,
        };
        let Some((from, to)) = line.trim().split_once(" --> ") else {
            continue;
        };
        let (to, _) = to.split_once(':').unwrap_or((to, ""));
        if from != "[*]" && to != "[*]" {
            drawn.insert((what, from.to_owned(), to.to_owned()));
        }
    }
    drawn
}

/// The generators reach what they are meant to reach; otherwise the property above would prove little.
#[test]
fn histories_reach_every_state() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    let mut moves = BTreeSet::new();
    for _ in 0..400 {
        let tree = (plans(), deadlines(), steps())
            .new_tree(&mut runner)
            .expect("a history");
        let (plan, deadline, steps) = tree.current();
        let mut world = World::new(plan, deadline);
        for step in steps {
            world.step(step);
            seen.extend(world.seen());
        }
        world.run_to_the_end();
        seen.extend(world.seen());
        moves.extend(world.moves().iter().cloned());
    }
    let drawn = drawn();
    let not_drawn: Vec<&Move> = moves.difference(&drawn).collect();
    assert!(
        not_drawn.is_empty(),
        "docs/states.md does not draw {not_drawn:?}"
    );
    // Random histories hardly ever make these; the unit tests do, in `machine/tests`: `undo.rs`, `deadline.rs` and `doubt.rs`.
    let rare = [
        ("undo", "none", "waived"),
        ("undo", "failed", "none"),
        ("milestone", "pending", "undone"),
        ("milestone", "pending", "failed"),
        ("milestone", "failed", "pending"),
        ("milestone", "in_doubt", "failed"),
        ("milestone", "undoing", "completed"),
    ]
    .map(|(what, from, to)| (what, from.to_owned(), to.to_owned()));
    let never: Vec<&Move> = drawn
        .difference(&moves)
        .filter(|drawn| !rare.contains(drawn))
        .collect();
    assert!(
        never.is_empty(),
        "docs/states.md draws {never:?}, which never happens"
    );
    let states = Status::ALL.iter().map(|status| status.as_str());
    let others = [
        "hold",
        "losses",
        "verify failed",
        "verified",
        "overdue",
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
