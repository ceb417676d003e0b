//! Orders get numbers that people can read, `140625-0003`. The process is killed when an order has its number and is written down, but before
//! that is known; another one repeats the action, and gets the same number again. So no order is there twice. What the dead process has drawn
//! and could not note for others is a gap in the numbers.
//!
//! ```text
//! $ cargo xtask example order_ids
//! MongoDB 8.2.11, replica set secantus, at 127.0.0.1:41777
//! killed when customer 10 had the number 261201-0009
//! another worker takes over when the lease of the dead one is over
//! the milestone 6b0e2529124b47f635d67891 is completed
//! ┌────────┬─────────┬───────────┬──────────────┬─────────┬──────────────────┬───────┐
//! │ action ┆ attempt ┆ success   ┆ began        ┆ took    ┆ worker           ┆ error │
//! ╞════════╪═════════╪═══════════╪══════════════╪═════════╪══════════════════╪═══════╡
//! │ take   ┆       1 ┆ abandoned ┆ 01:38:49.557 ┆ 2869 ms ┆ vm-9239-8d215e73 ┆       │
//! │ take   ┆       2 ┆ yes       ┆ 01:38:52.426 ┆  134 ms ┆ vm-9229-3925ccf4 ┆       │
//! └────────┴─────────┴───────────┴──────────────┴─────────┴──────────────────┴───────┘
//! 20 orders are written down, one for each customer
//! the next one will have the number 261201-0022
//! ┌──────────────────┬────────────┬────────────┐
//! │ ids per second   ┆ one by one ┆ 64 at once │
//! ╞══════════════════╪════════════╪════════════╡
//! │ findOneAndUpdate ┆        752 ┆       1390 │
//! │ next()           ┆        781 ┆       1500 │
//! │ next_n(100)      ┆      75499 ┆     109371 │
//! └──────────────────┴────────────┴────────────┘
//! ```

use std::{collections::BTreeSet, env, process::Command, time::Duration};

use bson::{Document, doc};
use clap::Parser;
use futures_util::TryStreamExt as _;
use milestone_examples::{kill::KillAfter, mongo, rates::rates, table::report, unfinished};
use milestone_runtime::{mongo::Sequence, prelude::*};
use mongodb::Collection;

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(take)]
struct Order {
    customer: String,
}

/// May be repeated as a whole, since its number stays the same.
#[action(idempotent)]
async fn take(
    Params(order): Params<Order>,
    numbers: State<Sequence>,
    orders: State<Collection<Document>>,
    kill: State<KillAfter>,
    cx: Context,
) -> Result<String, anyhow::Error> {
    let id = cx.next_id(&numbers).await?;
    let customer = doc! { "$setOnInsert": { "customer": &order.customer } };
    let write = orders.update_one(doc! { "_id": &id }, customer);
    write.upsert(true).await?;
    kill.reached(&order.customer);
    Ok(id)
}

/// Takes orders, with a kill in the middle of one.
#[derive(Parser)]
struct Args {
    /// Where orders and milestones are: `mongodb://HOST/DATABASE`
    #[arg(long, default_value = mongo::DEFAULT_URI)]
    uri: String,
    /// How many orders
    #[arg(long, default_value_t = 20)]
    orders: usize,
    /// Dies when the order of that customer is written down; the example starts itself with that
    #[arg(long)]
    kill_after: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let database = mongo::database(&args.uri).await?;
    let orders = database.collection::<Document>("orders");
    let numbers = Sequence::daily("orders").on(&database)?;
    let runtime = Runtime::builder(&args.uri)
        .state(numbers.clone())
        .state(orders.clone())
        .state(KillAfter(args.kill_after.clone()))
        .lease(Duration::from_secs(2))
        .build()
        .await?;
    let customers = (1..=args.orders).map(|n| format!("customer {n}"));
    let started = customers.map(|customer| Order { customer });
    if args.kill_after.is_some() {
        let started = runtime.start_many(started).await;
        runtime.spawn();
        for order in started {
            let _ = order?.outcome().await;
        }
        anyhow::bail!("it should have died");
    }

    println!("{}", runtime.server());
    let victim = format!("customer {}", args.orders.div_ceil(2));
    let dead = Command::new(env::current_exe()?)
        .args(["--uri", &args.uri, "--orders", &args.orders.to_string()])
        .args(["--kill-after", &victim])
        .output()?;
    anyhow::ensure!(dead.status.code().is_none(), "it was not killed: {dead:?}");
    let order = orders.find_one(doc! { "customer": &victim }).await?;
    let order = order.ok_or_else(|| anyhow::anyhow!("the order is not written down"))?;
    let had = order.get_str("_id")?;
    println!("killed when {victim} had the number {had}");

    runtime.spawn();
    println!("another worker takes over when the lease of the dead one is over");
    let mut again = None;
    for order in unfinished::<Order, _>(&runtime).await? {
        let number: String = order.outcome().await?;
        if number == had {
            again = Some(order);
        }
    }
    let again = again.ok_or_else(|| anyhow::anyhow!("{victim} has another number now"))?;
    println!("{}", report(&*again.ended().await?));
    let written: Vec<Document> = orders.find(doc! {}).await?.try_collect().await?;
    let customers: BTreeSet<&str> = written
        .iter()
        .map(|order| order.get_str("customer"))
        .collect::<Result<_, _>>()?;
    anyhow::ensure!(
        customers.len() == args.orders && written.len() == args.orders,
        "an order is missing or there twice: {written:?}"
    );
    println!(
        "{} orders are written down, one for each customer",
        written.len()
    );
    let last: String = numbers.next().await?;
    println!("the next one will have the number {last}");
    println!("{}", rates(&database).await?);
    Ok(())
}
