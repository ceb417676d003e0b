use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[action]
async fn notify() {}

fn main() {
    let _ = milestone!(warn: -> credit);
}
