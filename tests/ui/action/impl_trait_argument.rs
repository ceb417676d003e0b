use milestone_runtime::prelude::*;

#[action]
async fn debit(_: impl Send) {}

fn main() {}
