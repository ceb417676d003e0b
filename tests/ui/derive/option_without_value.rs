use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit, name = )]
struct Transfer {}

fn main() {}
