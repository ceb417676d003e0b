use milestone_runtime::prelude::*;

#[action]
fn debit() {}

fn main() {}
