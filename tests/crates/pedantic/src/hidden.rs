//! Actions that are less public, and in places where items can stand.

use milestone_runtime::{Definition, prelude::*};

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(private -> semi)]
pub(crate) struct Hidden;

#[action]
pub(crate) async fn private(_: Params<Hidden>) {}

#[action]
pub(crate) async fn semi(Output(()): Output<private>) -> Result<u8, ActionError> {
    Err("not today").or_fail()
}

/// A public milestone whose actions are nobody else's.
#[derive(Serialize, Deserialize, Milestone)]
#[milestone(weigh -> (stamp, load))]
pub struct Parcel;

#[action]
async fn weigh(_: Params<Parcel>) -> Result<u32, ActionError> {
    Ok(7)
}

#[action]
async fn stamp(Output(grams): Output<weigh>) -> Result<u32, ActionError> {
    Ok(grams)
}

#[action]
async fn load() {}

/// How many actions a graph has whose actions are in a function.
#[must_use]
pub fn visible() -> usize {
    #[action]
    async fn inner() {}

    let named: Definition<(), ()> = milestone!(inner -> again: inner).named("inner");
    named.graph().nodes.len() + Hidden::GRAPH.nodes.len()
}
