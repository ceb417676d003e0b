use milestone_runtime::prelude::*;

#[action(retry(times = 3))]
async fn debit() {}

fn main() {}
