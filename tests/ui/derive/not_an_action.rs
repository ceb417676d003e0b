use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

struct Credit;

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit -> Credit)]
struct Transfer {}

fn main() {}
