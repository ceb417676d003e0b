use milestone_runtime::prelude::*;

#[action(idempotent, verify = was_debited)]
async fn debit() {}

#[action(idempotent)]
async fn was_debited() -> Result<Verdict<()>, ActionError> {
    Ok(Verdict::NotApplied)
}

fn main() {}
