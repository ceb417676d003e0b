use milestone_runtime::prelude::*;

#[action(concurrency = 0)]
async fn debit() {}

fn main() {}
