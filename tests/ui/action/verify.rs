use milestone_runtime::prelude::*;

#[action(verify = was_debited)]
async fn debit() {}

pub async fn was_debited() {}

fn main() {}
