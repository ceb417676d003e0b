use milestone_runtime::prelude::*;

#[action(undo = refund)]
async fn debit() -> Result<u32, ActionError> {
    Ok(1)
}

#[action(idempotent)]
async fn refund(_: Output<debit>) {}

fn main() {}
