//! Money goes from one account to another, also when the process dies in between. Accounts and milestones stand in one database:
//! in the file `bank.db` of the current folder, if no `--uri` says otherwise.
//!
//! ```text
//! $ cargo run --example bank_transfer
//! SQLite 3.54.1, /home/ann/bank.db
//! starting transfers of 10 from alice to bob: 5
//! all are over after 28ms
//! ┌─────────┬────────┬───────┐
//! │ account ┆ before ┆ after │
//! ╞═════════╪════════╪═══════╡
//! │ alice   ┆  10000 ┆  9950 │
//! │ bob     ┆  10000 ┆ 10050 │
//! │ sum     ┆  20000 ┆ 20000 │
//! └─────────┴────────┴───────┘
//! the milestone 6b0dc594054e3a7a15f7362e is completed
//! ┌────────┬─────────┬─────────┬──────────────┬──────┬───────────────────┬───────┐
//! │ action ┆ attempt ┆ success ┆ began        ┆ took ┆ worker            ┆ error │
//! ╞════════╪═════════╪═════════╪══════════════╪══════╪═══════════════════╪═══════╡
//! │ debit  ┆       1 ┆ yes     ┆ 18:51:00.121 ┆ 8 ms ┆ vm-19583-3127e543 ┆       │
//! │ credit ┆       1 ┆ yes     ┆ 18:51:00.129 ┆ 7 ms ┆ vm-19583-3127e543 ┆       │
//! └────────┴─────────┴─────────┴──────────────┴──────┴───────────────────┴───────┘
//! ```
//!
//! With `--kill-after debit` the process dies when an account is debited and nobody knows it yet. The next run finishes what it finds:
//!
//! ```text
//! finishing what an earlier run left: 1
//! ..
//! the milestone 6b0dc594ac91d853ff2861d6 is completed
//! ┌────────┬─────────┬───────────┬──────────────┬───────┬───────────────────┬───────┐
//! │ action ┆ attempt ┆ success   ┆ began        ┆ took  ┆ worker            ┆ error │
//! ╞════════╪═════════╪═══════════╪══════════════╪═══════╪═══════════════════╪═══════╡
//! │ debit  ┆       1 ┆ abandoned ┆ 18:51:00.162 ┆ 20 ms ┆ vm-19608-e9dc3593 ┆       │
//! │ debit  ┆       2 ┆ yes       ┆ 18:51:00.182 ┆ 44 ms ┆ vm-19616-1e937378 ┆       │
//! │ credit ┆       1 ┆ yes       ┆ 18:51:00.226 ┆ 11 ms ┆ vm-19616-1e937378 ┆       │
//! └────────┴─────────┴───────────┴──────────────┴───────┴───────────────────┴───────┘
//! ```

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
    Ok(bank.cancel(&cx.key_of("debit"), &t.from, -t.amount).await?)
}

/// Transfers between two accounts.
#[derive(Parser)]
struct Args {
    /// Where accounts and milestones are: `sqlite:FILE` or `mongodb://HOST/DATABASE`
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
    println!("{}", runtime.server());

    let before = bank.balances().await?;
    let mut transfers = unfinished::<Transfer, _>(&runtime).await?;
    let left = transfers.len();
    if left > 0 {
        println!("finishing what an earlier run left: {left}");
    }
    runtime.spawn();
    let (began, count, amount) = (Instant::now(), args.transfers, 10);
    let [from, to] = richer_first(&before);
    println!("starting transfers of {amount} from {from} to {to}: {count}");
    let transfer = Transfer { from, to, amount };
    for started in runtime.start_many(vec![transfer; count]).await {
        transfers.push(started?);
    }
    for transfer in &transfers {
        if let Err(error) = transfer.outcome().await {
            println!("{error}");
        }
    }
    println!("all are over after {:.0?}", began.elapsed());

    let after = bank.balances().await?;
    println!("{}", balances(&before, &after));
    let sum: i64 = after.values().sum();
    assert_eq!(sum, 2 * OPENING, "no money comes or goes");
    if let Some(first) = transfers.first() {
        println!("{}", report(&*first.ended().await?));
    }
    Ok(())
}
