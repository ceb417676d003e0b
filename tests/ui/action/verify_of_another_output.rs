use milestone_runtime::prelude::*;

#[action]
async fn price() -> Result<u32, ActionError> {
    Ok(1)
}

#[action(verify = was_debited)]
async fn debit() {}

#[action(idempotent)]
async fn was_debited(Output(_price): Output<price>) -> Result<Verdict<()>, ActionError> {
    Ok(Verdict::NotApplied)
}

fn main() {}
