use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

pub struct Credit;

fn main() {
    let _ = milestone!(debit -> Credit -> debit2: debit).named("transfer");
}
