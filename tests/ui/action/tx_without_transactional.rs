use milestone_runtime::prelude::*;

#[action(idempotent)]
async fn debit(_: &mut Tx) {}

fn main() {}
