use milestone_runtime::prelude::*;

pub struct Mistake;

#[action]
async fn debit() -> Result<u32, Mistake> {
    Err(Mistake)
}

fn main() {}
