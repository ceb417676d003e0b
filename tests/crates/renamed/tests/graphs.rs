//! What the macros made of the graphs of this crate.

use milestone_tests_renamed::{Parcel, parcel};
use work::Milestone;

#[test]
fn the_derive_and_the_macro_give_the_same() {
    assert_eq!(Parcel::TYPE, "parcel");
    assert_eq!(Parcel::GRAPH.edges, [(0, 1)]);
    let names: Vec<&str> = Parcel::GRAPH.nodes.iter().map(|node| node.name).collect();
    assert_eq!(names, ["weigh", "stamp"]);
    let in_place: Vec<&str> = parcel()
        .graph()
        .nodes
        .iter()
        .map(|node| node.name)
        .collect();
    assert_eq!(in_place, names);
    assert_eq!(parcel().type_name(), "Parcel");
}
