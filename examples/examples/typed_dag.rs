//! An order goes through a graph that is no tree, checked by the compiler: several chains, a group, joins, an action that runs twice,
//! and outputs that are used further down.
//!
//! ```text
//!              ┌─> reserve ──> pack ─┐
//! accepted ────┤                     ├──> dispatch ──> sent
//!              └─> charge ───────────┘
//!                     └──> receipt
//! ```
//!
//! `accepted` and `sent` are both the action `notify`. What ends the graph, `sent` and `receipt`, is its outcome, as a tuple.
//!
//! ```text
//! $ cargo run --example typed_dag
//! Dear Ada, your order is sent.
//! paid: 2 items, payment order-6b0dc594328000de2f15cd16
//! ┌──────────┬──────────────┬─────────────────────────────────────────────────────────┐
//! │ action   ┆ runs after   ┆ output                                                  │
//! ╞══════════╪══════════════╪═════════════════════════════════════════════════════════╡
//! │ accepted ┆              ┆ "Dear Ada, your order is accepted."                     │
//! │ reserve  ┆ accepted     ┆ { "hall": 3, "parcels": 2 }                             │
//! │ pack     ┆ reserve      ┆ 800                                                     │
//! │ charge   ┆ accepted     ┆ "2 items, payment order-6b0dc594328000de2f15cd16"       │
//! │ dispatch ┆ pack, charge ┆ "800 g from hall 3"                                     │
//! │ sent     ┆ dispatch     ┆ "Dear Ada, your order is sent."                         │
//! │ receipt  ┆ charge       ┆ "paid: 2 items, payment order-6b0dc594328000de2f15cd16" │
//! └──────────┴──────────────┴─────────────────────────────────────────────────────────┘
//! ```

use clap::Parser;
use milestone_examples::table::table;
use milestone_runtime::prelude::*;

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(
    accepted: notify -> (reserve -> pack, charge) -> dispatch -> sent: notify;
    charge -> receipt
)]
struct Order {
    customer: String,
    items: Vec<String>,
}

/// Tells the customer. It is in the graph twice, so it looks at its name there to know what to tell.
#[action(idempotent)]
async fn notify(Params(order): Params<Order>, cx: Context) -> Result<String, ActionError> {
    Ok(format!(
        "Dear {}, your order is {}.",
        order.customer,
        cx.action()
    ))
}

#[derive(Debug, Serialize, Deserialize)]
struct Shelf {
    hall: u8,
    parcels: usize,
}

#[action(idempotent)]
async fn reserve(Params(order): Params<Order>) -> Result<Shelf, ActionError> {
    Ok(Shelf {
        hall: 3,
        parcels: order.items.len(),
    })
}

/// `Output<reserve>` compiles only since `reserve` runs before.
#[action(idempotent)]
async fn pack(Output(shelf): Output<reserve>) -> Result<usize, ActionError> {
    Ok(shelf.parcels * 400)
}

/// Plain: money is taken at most once. After a crash somebody has to say whether it was.
#[action]
async fn charge(Params(order): Params<Order>, cx: Context) -> Result<String, ActionError> {
    Ok(format!(
        "{} items, payment {}",
        order.items.len(),
        cx.milestone_id()
    ))
}

/// Waits for both ways through the group, and takes the output of an action further up, too.
#[action(idempotent)]
async fn dispatch(
    Output(shelf): Output<reserve>,
    Output(grams): Output<pack>,
    Output(_payment): Output<charge>,
) -> Result<String, ActionError> {
    Ok(format!("{grams} g from hall {}", shelf.hall))
}

#[action(idempotent)]
async fn receipt(Output(payment): Output<charge>) -> Result<String, ActionError> {
    Ok(format!("paid: {payment}"))
}

/// An order, from its acceptance to the parcel.
#[derive(Parser)]
struct Args {
    /// Where the milestones are: `memory:`, `sqlite:FILE` or `mongodb://HOST/DATABASE`
    #[arg(long, default_value = "memory:")]
    uri: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { uri } = Args::parse();
    let runtime = Runtime::builder(uri).worker_name("me").build().await?;
    runtime.spawn();

    let order = Order {
        customer: "Ada".into(),
        items: vec!["ink".into(), "paper".into()],
    };
    let order = order
        .start_with_id(&runtime, format!("order-{}", bson::oid::ObjectId::new()))
        .await?;
    let (sent, receipt): (String, String) = order.outcome().await?;
    println!("{sent}\n{receipt}");

    let record = order.ended().await?;
    let mut outputs = table(["action", "runs after", "output"]);
    for action in &record.actions {
        let after = action
            .after
            .iter()
            .map(|index| record.actions[*index as usize].name.as_str());
        let output = action
            .output
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        outputs.add_row([
            action.name.clone(),
            after.collect::<Vec<_>>().join(", "),
            output,
        ]);
    }
    println!("{outputs}");
    runtime.shutdown().await;
    Ok(())
}
