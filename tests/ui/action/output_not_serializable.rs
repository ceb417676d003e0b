use milestone_runtime::prelude::*;

pub struct Balance;

#[action]
async fn debit() -> Result<Balance, ActionError> {
    Ok(Balance)
}

fn main() {}
