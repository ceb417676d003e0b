use milestone_runtime::prelude::*;

#[action(verify = was_debited)]
async fn debit() -> Result<u32, ActionError> {
    Ok(1)
}

#[action(idempotent)]
async fn was_debited() -> Result<bool, ActionError> {
    Ok(true)
}

fn main() {}
