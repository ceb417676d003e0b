use milestone_runtime::prelude::*;

#[action(transactional, idempotent)]
async fn debit(_: &mut Tx) {}

fn main() {}
