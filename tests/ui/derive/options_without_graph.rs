use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(name = "transfer")]
struct Transfer {}

fn main() {}
