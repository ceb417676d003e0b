use bson::{Document, doc};
use milestone_runtime::prelude::*;

#[action(transactional)]
async fn debit(tx: &mut Tx) -> Result<(), ActionError> {
    let accounts = tx.collection::<Document>("accounts");
    tx.run(accounts.insert_one(doc! {}).await?).await?;
    Ok(())
}

fn main() {}
