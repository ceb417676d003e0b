use milestone_runtime::prelude::*;

#[action(timeout = "0s")]
async fn debit() {}

fn main() {}
