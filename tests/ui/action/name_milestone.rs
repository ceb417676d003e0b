use milestone_runtime::prelude::*;

#[action]
async fn milestone() {}

fn main() {}
