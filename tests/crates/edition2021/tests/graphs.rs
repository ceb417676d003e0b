//! What the macros made of the graphs of this crate.

use milestone_runtime::Milestone;
use milestone_tests_edition2021::{counted, Letters};

#[test]
fn a_chain() {
    let names: Vec<&str> = Letters::GRAPH.nodes.iter().map(|node| node.name).collect();
    assert_eq!(names, ["count", "gen", "report"]);
    assert_eq!(Letters::GRAPH.edges, [(0, 1), (1, 2)]);
}

#[test]
fn a_graph_through_a_macro_is_the_same() {
    let definition = counted();
    let methods: Vec<&str> = definition
        .graph()
        .nodes
        .iter()
        .map(|node| node.method)
        .collect();
    assert_eq!(methods, ["count", "gen", "report"]);
    assert_eq!(definition.graph().edges, Letters::GRAPH.edges);
}
