use milestone_runtime::prelude::*;

#[action(retry(base = "10m"))]
async fn debit() {}

fn main() {}
