use milestone_runtime::prelude::*;

#[action]
async fn debit(_: Params<Transfer>) {}

#[action]
async fn credit(_: Params<String>) {}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit)]
struct Transfer {}

fn main() {}
