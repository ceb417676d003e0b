use milestone_runtime::prelude::*;

#[action(undo = refund)]
async fn debit() {}

#[action]
async fn refund() {}

fn main() {}
