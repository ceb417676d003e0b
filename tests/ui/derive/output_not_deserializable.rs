use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[derive(Serialize)]
pub struct Balance;

#[action]
async fn settle() -> Result<Balance, ActionError> {
    Ok(Balance)
}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit -> settle)]
struct Transfer {}

fn main() {}
