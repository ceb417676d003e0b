use milestone_runtime::prelude::*;

#[action(queue = "a", idempotent, queue = "b")]
async fn debit() {}

fn main() {}
