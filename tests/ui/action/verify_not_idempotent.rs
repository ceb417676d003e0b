use milestone_runtime::prelude::*;

#[action(verify = was_debited)]
async fn debit() {}

#[action]
async fn was_debited() -> Result<Verdict<()>, ActionError> {
    Ok(Verdict::NotApplied)
}

fn main() {}
