use milestone_runtime::prelude::*;

#[action]
async fn debit() -> u32 {
    1
}

fn main() {}
