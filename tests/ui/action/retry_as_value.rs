use milestone_runtime::prelude::*;

#[action(retry = 3)]
async fn debit() {}

fn main() {}
