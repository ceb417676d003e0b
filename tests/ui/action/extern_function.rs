use milestone_runtime::prelude::*;

#[action]
async extern "C" fn debit() {}

fn main() {}
