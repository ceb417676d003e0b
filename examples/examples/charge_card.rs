//! A card is charged once, also when the process dies in the middle of it and nobody knows whether the charge was made.
//!
//! `charge` must not run twice, so it is a plain action. Cut off, it is in doubt, and `was_charged` looks it up at the card service.
//! Orders and the books of the service (a stand-in) are in the file `shop.db` of the current folder, if no `--uri` says otherwise.
//!
//! ```text
//! $ cargo run --example charge_card
//! SQLite 3.54.1, /home/ann/shop.db
//! shipped, 25 were paid
//! the milestone 6b0dfa1ee69bd30c6011ded8 is completed
//! ┌────────┬─────────┬─────────┬──────────────┬───────┬───────────────────┬───────┐
//! │ action ┆ attempt ┆ success ┆ began        ┆ took  ┆ worker            ┆ error │
//! ╞════════╪═════════╪═════════╪══════════════╪═══════╪═══════════════════╪═══════╡
//! │ charge ┆       1 ┆ yes     ┆ 22:35:10.148 ┆ 23 ms ┆ vm-19450-320b90c1 ┆       │
//! │ ship   ┆       1 ┆ yes     ┆ 22:35:10.171 ┆  2 ms ┆ vm-19450-320b90c1 ┆       │
//! └────────┴─────────┴─────────┴──────────────┴───────┴───────────────────┴───────┘
//! the card service was asked to charge it: 1; charges: 1
//! ```
//!
//! With `--kill-in charge` the process dies when the card is charged and nobody here knows it yet; with `--moment before`, just before.
//! The next run finds the order in doubt:
//!
//! ```text
//! an earlier run left an order in doubt; `was_charged` is asked after 2 s
//! ..
//! │ charge          ┆       1 ┆ abandoned ┆ 22:35:12.268 ┆ 18 ms ┆ vm-19509-0d77a6f1 ┆       │
//! │ charge (verify) ┆       1 ┆ yes       ┆ 22:35:14.291 ┆  6 ms ┆ vm-19518-bb5aa711 ┆       │
//! │ ship            ┆       1 ┆ yes       ┆ 22:35:14.297 ┆  2 ms ┆ vm-19518-bb5aa711 ┆       │
//! └─────────────────┴─────────┴───────────┴──────────────┴───────┴───────────────────┴───────┘
//! the card service was asked to charge it: 1; charges: 1
//! ```

use std::time::Duration;

use clap::Parser;
use milestone_examples::{
    card::{CardError, Cards, Receipt},
    is_in_doubt,
    kill::{KillIn, Moment},
    table::report,
    unfinished,
};
use milestone_runtime::{prelude::*, stop_signal};

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(charge -> ship)]
struct Order {
    price: i64,
}

/// Runs at most once, unless `was_charged` says that it did not take effect. Its error says what comes next: again, never, or nobody knows.
#[action(verify = was_charged, timeout = "10s", retry(max = 5, base = "100ms", when = CardError::retry))]
async fn charge(
    Params(order): Params<Order>,
    cards: State<Cards>,
    kill: State<KillIn>,
    cx: Context,
) -> Result<Receipt, CardError> {
    kill.reached("charge", Moment::Before);
    let charged = cards.charge(&cx.idempotency_key(), order.price).await;
    kill.reached("charge", Moment::After);
    charged
}

/// Looks the charge up. A verify has the idempotency key of its action.
///
/// It may say `NotApplied`, since the old attempt cannot charge the card besides the next one: they have the same key, and the service takes
/// it once. Should the old request still come, the next one is refused as a duplicate, which leaves it in doubt again: then it is found.
#[action(idempotent)]
async fn was_charged(cards: State<Cards>, cx: Context) -> Result<Verdict<Receipt>, CardError> {
    let found = cards.find(&cx.idempotency_key()).await?;
    Ok(found.map_or(Verdict::NotApplied, Verdict::Applied))
}

#[action(idempotent)]
async fn ship(Output(receipt): Output<charge>) -> Result<String, ActionError> {
    Ok(format!("shipped, {} were paid", receipt.amount))
}

/// Charges a card for an order: for one that an earlier run left, or else for a new one.
#[derive(Parser)]
struct Args {
    /// Where orders and charges are: `sqlite:FILE` or `mongodb://HOST/DATABASE`
    #[arg(long, default_value = "sqlite:shop.db")]
    uri: String,
    /// What the order costs; over 1000 the card is declined
    #[arg(long, default_value_t = 25)]
    price: i64,
    /// How many requests the card service refuses, since it is busy
    #[arg(long, default_value_t = 0)]
    busy: u32,
    /// Dies in the middle of this action
    #[arg(long, value_parser = ["charge"])]
    kill_in: Option<String>,
    /// Before or after its effect
    #[arg(long, value_enum, default_value_t = Moment::After, requires = "kill_in")]
    moment: Moment,
    /// Starts nothing, and works until it is told to stop (Ctrl-C or SIGTERM; told again, it cuts off what runs)
    #[arg(long)]
    worker: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let cards = Cards::open(&args.uri, args.busy).await?;
    let (action, moment) = (args.kill_in, args.moment);
    let runtime = Runtime::builder(&args.uri)
        .state(cards.clone())
        .state(KillIn { action, moment })
        .lease(Duration::from_secs(2))
        // Short, for an example. By default it is the timeout and the grace period, at least 30 s: so long a worker that lost its lease may
        // still be in the middle of a charge, and whoever looks earlier is told "not charged" of what is charged a moment later.
        .settle(Duration::from_secs(2))
        .build()
        .await?;
    println!("{}", runtime.server());
    if args.worker {
        println!("{} works; Ctrl-C ends it", runtime.worker());
        runtime.run_until(stop_signal).await;
        println!("{} has ended", runtime.worker());
        return Ok(());
    }

    let left = unfinished::<Order, _>(&runtime).await?.pop();
    runtime.spawn();
    let order = if let Some(order) = left {
        if is_in_doubt(&order).await? {
            println!("an earlier run left an order in doubt; `was_charged` is asked after 2 s");
        }
        order
    } else {
        let price = args.price;
        Order { price }.start(&runtime).await?
    };
    let shipped = order.outcome().await;
    println!("{}", shipped.unwrap_or_else(|error| error.to_string()));
    println!("{}", report(&*order.ended().await?));

    let (requests, charges) = cards.books(&format!("{}/charge", order.id())).await?;
    println!("the card service was asked to charge it: {requests}; charges: {charges}");
    Ok(())
}
