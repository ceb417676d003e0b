use milestone_runtime::prelude::*;

#[action(idempotant, timeout = "30", retry(max = 0, times = 2))]
fn debit(_: &Context) {}

fn main() {}
