use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

pub async fn credit() {}

fn main() {
    let _ = milestone!(debit -> credit).named("transfer");
}
