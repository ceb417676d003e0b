use milestone_runtime::prelude::*;

#[action(timeout = "soon")]
async fn debit() {}

fn main() {}
