//! What the macros made of the graphs of this crate.

use std::time::Duration;

use milestone_runtime::{Graph, Milestone, action::Action, core::graph::Plan, core::options::Mode};
use milestone_tests_pedantic::{
    Parcel,
    bank::{self, debit},
    transfer::{Evening, Transfer, any, plain},
    visible,
};

fn names(graph: &Graph) -> Vec<(&str, &str)> {
    graph
        .nodes
        .iter()
        .map(|node| (node.name, node.method))
        .collect()
}

#[test]
fn s01_type_and_method_can_differ() {
    let expected = [
        ("debit", "bank.debit"),
        ("credit", "credit"),
        ("warn", "notify"),
        ("move", "move"),
        ("audit", "audit"),
        ("thank", "notify"),
    ];
    assert_eq!(names(Transfer::GRAPH), expected);
    assert_eq!(Transfer::TYPE, "bank.transfer");
}

#[test]
fn s02_next_and_done() {
    assert_eq!(
        Transfer::GRAPH.edges,
        [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4), (2, 5), (4, 5)]
    );
    let plan = Plan::try_from(Transfer::GRAPH).expect("a valid plan");
    assert_eq!(plan.actions()[4].after, [1, 3]);
    assert_eq!(plan.ends(), [5]);
}

#[test]
fn several_ends() {
    assert_eq!(Evening::TYPE, "Evening");
    assert_eq!(Evening::GRAPH.edges, [(0, 1), (0, 2)]);
}

#[test]
fn graphs_in_place() {
    assert_eq!(
        names(plain().graph()),
        [("debit", "bank.debit"), ("credit", "credit")]
    );
    assert_eq!(plain().graph().edges, [(0, 1)]);
    assert_eq!(plain().type_name(), "Transfer");
    assert_eq!(
        names(any::<u8>().graph()),
        [("first", "audit"), ("second", "notify")]
    );
    assert!(any::<u8>().graph().edges.is_empty());
    assert_eq!(any::<u8>().type_name(), "any");
    assert_eq!(visible(), 4);
}

#[test]
fn options_are_what_was_written() {
    let options = debit::OPTIONS;
    assert_eq!(options.mode, Mode::Idempotent);
    assert_eq!(options.undo, Some("refund"));
    assert_eq!(options.timeout, Some(Duration::from_secs(30)));
    assert_eq!(options.queue, Some("bank"));
    assert_eq!(options.concurrency, Some(4));
    let retry = options.retry.expect("it is written");
    assert_eq!((retry.max, retry.factor), (Some(5), 3));
    assert_eq!(
        (retry.base, retry.cap),
        (Duration::from_millis(500), Duration::from_secs(60))
    );
    assert_eq!(bank::notify::OPTIONS.mode, Mode::Plain);
    assert_eq!(bank::notify::OPTIONS.retry, None);
    assert_eq!(<bank::r#move as Action>::NAME, "move");
}

/// A public type may have actions that are not: its outcome is named beside it.
#[test]
fn a_public_milestone_of_private_actions() {
    fn yields<M: Milestone + milestone_runtime::Yields<(u32, ())>>() -> usize {
        M::GRAPH.nodes.len()
    }
    assert_eq!(yields::<Parcel>(), 3);
}
