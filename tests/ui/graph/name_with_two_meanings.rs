use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[action]
async fn notify() {}

mod actions {
    #[milestone_runtime::action]
    pub async fn debit() {}
}

fn main() {
    let _ = milestone!(debit -> credit; actions::debit -> credit);
}
