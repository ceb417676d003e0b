use milestone_runtime::prelude::*;

#[action(idempotent = true)]
async fn debit() {}

fn main() {}
