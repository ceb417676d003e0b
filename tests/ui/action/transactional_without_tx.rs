use milestone_runtime::prelude::*;

#[action(transactional)]
async fn debit() {}

fn main() {}
