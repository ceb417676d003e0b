use milestone_runtime::prelude::*;

#[action]
async fn debit(_: Output<credit>) {}

#[action]
async fn credit() -> Result<u32, ActionError> {
    Ok(1)
}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit)]
struct Transfer {}

fn main() {}
