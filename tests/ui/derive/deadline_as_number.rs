use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit, deadline = 90)]
struct Transfer {}

fn main() {}
