//! Money moves between accounts in one MongoDB transaction, while workers are killed: exactly once, or not at all.
//!
//! ```text
//! $ cargo xtask example transactional
//! MongoDB 8.2.11, replica set secantus, at 127.0.0.1:27555
//! 200 transfers among 10 accounts, 4 workers, seed 1
//! all are over after 51s; workers killed: 98
//! completed: 180, failed: 20
//! ┌───────────┬───────┬───────────────┐
//! │ account   ┆ holds ┆ by the ledger │
//! ╞═══════════╪═══════╪═══════════════╡
//! │ account-0 ┆  1054 ┆          1054 │
//! │ account-1 ┆  1014 ┆          1014 │
//! │ account-2 ┆   880 ┆           880 │
//! │ account-3 ┆  1004 ┆          1004 │
//! │ account-4 ┆   912 ┆           912 │
//! │ account-5 ┆  1101 ┆          1101 │
//! │ account-6 ┆  1064 ┆          1064 │
//! │ account-7 ┆  1026 ┆          1026 │
//! │ account-8 ┆  1030 ┆          1030 │
//! │ account-9 ┆   915 ┆           915 │
//! │ sum       ┆ 10000 ┆         10000 │
//! └───────────┴───────┴───────────────┘
//! each account holds what the ledger says; markers left: 0
//! ```

use bson::doc;
use clap::Parser;
use milestone_examples::{
    books::Books,
    chaos::{self, Chaos},
    mongo,
};
use milestone_runtime::{mongo::Tx, prelude::*};

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(transfer)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

/// All of it, or nothing: an error takes everything back.
#[action(transactional)]
async fn transfer(
    Params(t): Params<Transfer>,
    books: State<Books>,
    tx: &mut Tx,
) -> Result<(), ActionError> {
    for (account, amount) in [(&t.from, -t.amount), (&t.to, t.amount)] {
        let account_holds = doc! { "_id": account, "balance": { "$gte": -amount } };
        let change = doc! { "$inc": { "balance": amount } };
        let booked = tx
            .run(books.accounts.update_one(account_holds, change))
            .await?;
        if booked.matched_count == 0 {
            return Err(ActionError::fatal(format!(
                "`{account}` cannot be charged {}",
                -amount
            )));
        }
        let booking = doc! { "account": account, "amount": amount };
        tx.run(books.ledger.insert_one(booking)).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let chaos = Chaos::parse();
    let database = mongo::database(&chaos.uri).await?;
    let books = Books::of(&database);
    let runtime = chaos
        .builder()
        .mongo_client(database.client().clone())
        .state(books.clone())
        .build()
        .await?;
    chaos::run(&chaos, &runtime, &books, |from, to, amount| {
        Transfer { from, to, amount }.start(&runtime)
    })
    .await
}
