use milestone_runtime::prelude::*;

#[action]
async fn debit(_: Params<u32>, _: Params<String>) {}

fn main() {}
