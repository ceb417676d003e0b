use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit ->)]
struct Transfer {}

fn main() {}
