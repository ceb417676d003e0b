use milestone_runtime::prelude::*;

/// An undo that sees what it undoes.
#[action(undo = refund)]
async fn debit(_: Params<String>) -> Result<u32, ActionError> {
    Ok(1)
}

#[action(idempotent, retry(max = 3))]
async fn refund(Params(_): Params<String>, taken: Option<Output<debit>>) -> Result<(), String> {
    taken.map(drop).ok_or_else(|| "nothing was taken".to_owned())
}

fn main() {
    let _ = milestone!(debit).takes::<debit>();
}
