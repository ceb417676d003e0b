use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone]
struct Transfer {}

fn main() {}
