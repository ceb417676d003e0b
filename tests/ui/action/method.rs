use milestone_runtime::prelude::*;

struct Bank;

impl Bank {
    #[action]
    async fn debit(&self) {}
}

fn main() {}
