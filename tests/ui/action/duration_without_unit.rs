use milestone_runtime::prelude::*;

#[action(timeout = "30")]
async fn debit() {}

fn main() {}
