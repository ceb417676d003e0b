use milestone_runtime::prelude::*;

#[action(name = "")]
async fn debit() {}

fn main() {}
