use milestone_runtime::prelude::*;

#[action]
async fn debit() {}

#[action]
async fn credit() {}

#[derive(Milestone)]
#[milestone(debit -> credit)]
union Transfer {
    amount: i64,
}

fn main() {}
