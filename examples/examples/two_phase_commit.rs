//! Money moves between accounts by two writes to two documents, without a transaction, while workers are killed. Each write is made exactly once
//! by `cx.once`; what was sent to an account that does not exist goes back.
//!
//! ```text
//! $ cargo xtask example two_phase_commit
//! MongoDB 8.2.11, replica set secantus, at 127.0.0.1:32975
//! 200 transfers among 10 accounts, 4 workers, seed 1
//! all are over after 7s; workers killed: 13
//! completed: 180, undone: 20
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
use milestone_runtime::{mongo::OnceError, prelude::*};

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

/// Takes the money. Both writes are made once, however often this runs.
#[action(idempotent, undo = refund)]
async fn debit(
    Params(t): Params<Transfer>,
    books: State<Books>,
    cx: Context,
) -> Result<(), ActionError> {
    let account = doc! { "_id": &t.from, "balance": { "$gte": t.amount } };
    let take = doc! { "$inc": { "balance": -t.amount } };
    match cx.once(&books.accounts).update_one(account, take).await {
        // The account holds too little: no retry will change that.
        Err(error @ OnceError::Unmatched { .. }) => return Err(ActionError::fatal(error)),
        taken => taken?,
    };
    let booking = doc! { "account": &t.from, "amount": -t.amount };
    cx.once(&books.ledger).insert_one(booking).await?;
    Ok(())
}

/// Puts it where it belongs.
#[action(idempotent)]
async fn credit(
    Params(t): Params<Transfer>,
    books: State<Books>,
    cx: Context,
) -> Result<(), ActionError> {
    let give = doc! { "$inc": { "balance": t.amount } };
    // Fatal, if there is no such account.
    cx.once(&books.accounts)
        .update_one(doc! { "_id": &t.to }, give)
        .await?;
    let booking = doc! { "account": &t.to, "amount": t.amount };
    cx.once(&books.ledger).insert_one(booking).await?;
    Ok(())
}

/// Takes back what `debit` did, and only that: each of its writes, if it was made.
#[action(idempotent)]
async fn refund(
    Params(t): Params<Transfer>,
    books: State<Books>,
    cx: Context,
) -> Result<(), ActionError> {
    let give = doc! { "$inc": { "balance": t.amount } };
    cx.once(&books.accounts)
        .undo()
        .update_one(doc! { "_id": &t.from }, give)
        .await?;
    cx.once(&books.ledger).undo().delete_one(doc! {}).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let chaos = Chaos::parse();
    let database = mongo::database(&chaos.uri).await?;
    let books = Books::of(&database);
    let runtime = chaos.builder().state(books.clone()).build().await?;
    chaos::run(&chaos, &runtime, &books, |from, to, amount| {
        Transfer { from, to, amount }.start(&runtime)
    })
    .await
}
