use milestone_runtime::prelude::*;

#[action(transactional = true)]
async fn debit(_: &mut Tx) {}

fn main() {}
