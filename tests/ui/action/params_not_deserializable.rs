use milestone_runtime::prelude::*;

pub struct Transfer;

#[action]
async fn debit(_: Params<Transfer>) {}

fn main() {}
