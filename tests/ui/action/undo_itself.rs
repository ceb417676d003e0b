use milestone_runtime::prelude::*;

#[action(idempotent, undo = debit)]
async fn debit() {}

fn main() {}
