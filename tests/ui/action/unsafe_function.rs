use milestone_runtime::prelude::*;

#[action]
async unsafe fn debit() {}

fn main() {}
