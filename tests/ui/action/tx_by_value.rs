use milestone_runtime::prelude::*;

#[action(transactional)]
async fn debit(_: Tx) {}

#[action(transactional)]
async fn credit(_: &Tx) {}

fn main() {}
