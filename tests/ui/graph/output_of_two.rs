use milestone_runtime::prelude::*;

#[action]
async fn debit(_: Params<u32>) -> Result<u32, ActionError> {
    Ok(1)
}

#[action]
async fn credit(_: Output<debit>) {}

fn main() {
    let _ = milestone!((first: debit, second: debit) -> credit).named("transfer");
}
