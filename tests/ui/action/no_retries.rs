use milestone_runtime::prelude::*;

#[action(retry(max = 0))]
async fn debit() {}

fn main() {}
