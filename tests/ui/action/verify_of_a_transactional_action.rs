use milestone_runtime::prelude::*;

#[action(transactional, verify = was_debited)]
async fn debit(_: &mut Tx) {}

#[action(idempotent)]
async fn was_debited() -> Result<Verdict<()>, ActionError> {
    Ok(Verdict::NotApplied)
}

fn main() {}
