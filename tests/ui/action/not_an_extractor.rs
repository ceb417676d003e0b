use milestone_runtime::prelude::*;

#[action]
async fn debit(_: Context, _: u32) {}

fn main() {}
