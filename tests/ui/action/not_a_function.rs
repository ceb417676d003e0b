use milestone_runtime::prelude::*;

#[action]
struct Debit;

fn main() {}
