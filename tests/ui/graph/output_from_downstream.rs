use milestone_runtime::prelude::*;

#[action]
async fn debit(_: Output<credit>) {}

#[action]
async fn credit(_: Params<u32>) -> Result<u32, ActionError> {
    Ok(1)
}

fn main() {
    let _ = milestone!(debit -> credit).named("transfer");
}
