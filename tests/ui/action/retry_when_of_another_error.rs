use milestone_runtime::prelude::*;

struct Other;

impl Other {
    fn is_transient(&self) -> bool {
        true
    }
}

#[action(idempotent, retry(when = Other::is_transient))]
async fn debit() -> Result<(), ActionError> {
    Ok(())
}

fn main() {}
