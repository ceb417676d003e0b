use milestone_runtime::prelude::*;

#[action(undo = refund)]
async fn debit(_: Params<u32>) {}

#[action(idempotent)]
async fn refund(_: Params<String>) {}

fn main() {}
