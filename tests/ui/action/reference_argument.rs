use milestone_runtime::prelude::*;

#[action]
async fn debit(_: &Context) {}

fn main() {}
