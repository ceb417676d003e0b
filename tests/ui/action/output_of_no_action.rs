use milestone_runtime::prelude::*;

#[action]
async fn credit(_: Output<debit>) {}

fn main() {}
