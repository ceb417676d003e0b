use milestone_runtime::prelude::*;

#[action(idempotent queue = "mail")]
async fn debit() {}

fn main() {}
