use milestone_runtime::prelude::*;

#[action(transactional)]
async fn debit(_: &mut Tx, _: &mut Tx) {}

fn main() {}
