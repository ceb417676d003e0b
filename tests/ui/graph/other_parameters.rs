use milestone_runtime::prelude::*;

#[action]
async fn debit(_: Params<u32>) {}

#[action]
async fn credit(_: Params<String>) {}

fn main() {
    let _ = milestone!(debit -> credit).named("transfer");
}
