use milestone_runtime::prelude::*;

#[action(queue)]
async fn debit() {}

fn main() {}
