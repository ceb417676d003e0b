use milestone_runtime::prelude::*;

#[action(idempotant)]
async fn debit() {}

fn main() {}
