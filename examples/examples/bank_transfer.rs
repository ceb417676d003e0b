//! Money goes from one account to another, also when the process dies in between.
//!
//! The accounts stand in the same database as the milestones: without `--uri` that is the file `bank.db` in the current folder.
//!
//! ```text
//! OUTPUT
//! ```
//!
//! With `--kill-after debit` the process dies when an account has been debited and nobody knows that yet. The next run, without that
//! flag, finds the transfer and finishes it.

use std::time::{Duration, Instant};

use clap::Parser;
use milestone_examples::{
    bank::{Balance, Bank, OPENING, richer_first},
    kill::KillAfter,
    table::{balances, report},
    unfinished,
};
use milestone_runtime::prelude::*;

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

/// Takes the money from the first account. Not enough of it is fatal: trying again would not help.
#[action(idempotent, undo = refund)]
async fn debit(
    Params(t): Params<Transfer>,
    bank: State<Bank>,
    kill: State<KillAfter>,
    cx: Context,
) -> Result<Balance, ActionError> {
    let balance = bank.book(&cx.idempotency_key(), &t.from, -t.amount).await?;
    kill.reached("debit");
    Ok(balance)
}

/// Puts it on the second one.
#[action(idempotent)]
async fn credit(
    Params(t): Params<Transfer>,
    bank: State<Bank>,
    cx: Context,
) -> Result<Balance, ActionError> {
    Ok(bank.book(&cx.idempotency_key(), &t.to, t.amount).await?)
}

/// Undoes a debit. It must bear that nothing was taken, since a debit that was refused is undone as well.
#[action(idempotent)]
async fn refund(
    Params(t): Params<Transfer>,
    bank: State<Bank>,
    cx: Context,
) -> Result<(), ActionError> {
    // An undo has a key of its own; the bank knows the booking by that of the debit.
    let key = cx.idempotency_key();
    let debit = key.trim_end_matches("/undo");
    Ok(bank.cancel(debit, &t.from, -t.amount).await?)
}

/// Transfers between two accounts.
#[derive(Parser)]
struct Args {
    /// Where accounts and milestones are: sqlite:FILE or mongodb://HOST/DATABASE
    #[arg(long, default_value = "sqlite:bank.db")]
    uri: String,
    /// How many transfers to start
    #[arg(long, default_value_t = 5)]
    transfers: usize,
    /// Dies after the effect of this action, before its completion is stored
    #[arg(long, value_parser = ["debit"])]
    kill_after: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let bank = Bank::open(&args.uri).await?;
    let runtime = Runtime::builder(&args.uri)
        .state(bank.clone())
        .state(KillAfter(args.kill_after))
        .lease(Duration::from_secs(2))
        .build()
        .await?;
    println!("{} in {}", args.uri, runtime.server());

    // Read before anything runs, so what an earlier run took and did not bring is missing here.
    let before = bank.balances().await?;
    let mut transfers = unfinished::<Transfer>(&runtime).await?;
    if !transfers.is_empty() {
        println!(
            "finishing {} transfers that an earlier run left",
            transfers.len()
        );
    }
    runtime.spawn();

    let began = Instant::now();
    let [from, to] = richer_first(&before);
    let amount = 10;
    println!(
        "starting {} transfers of {amount} from {from} to {to}",
        args.transfers
    );
    let transfer = Transfer { from, to, amount };
    for started in runtime.start_many(vec![transfer; args.transfers]).await {
        transfers.push(started?);
    }
    for transfer in &transfers {
        if let Err(error) = transfer.outcome().await {
            println!("{error}");
        }
    }
    println!(
        "{} transfers are over after {:.0?}",
        transfers.len(),
        began.elapsed()
    );

    let after = bank.balances().await?;
    println!("{}", balances(&before, &after));
    let sum: i64 = after.values().sum();
    assert_eq!(
        sum,
        2 * OPENING,
        "nothing is under way, so no money is missing"
    );
    if let Some(first) = transfers.first() {
        println!("{}", report(&*first.ended().await?));
    }
    Ok(())
}
