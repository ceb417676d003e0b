use milestone_runtime::prelude::*;

#[action(undo = refund)]
async fn debit() {}

pub async fn refund() {}

fn main() {}
