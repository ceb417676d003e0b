//! Three documents are inserted side by side, all of them or none: one of the inserts fails for good, so what the other two have stored is
//! removed again, and a removal that fails is tried until it works.
//!
//! ```text
//! $ cargo xtask example all_or_nothing
//! MongoDB 8.2.11, replica set secantus, at 127.0.0.1:34779
//! a purchase of 50 is completed; documents: 1 order, 1 invoice, 1 shipment
//! a purchase of 5000 is undone; documents: 0 order, 0 invoice, 0 shipment
//! the milestone 6b0e2b3d0406f25da62c12b8 is undone
//! ┌─────────────────┬─────────┬─────────┬──────────────┬────────┬───────────────────┬───────────────────────────┐
//! │ action          ┆ attempt ┆ success ┆ began        ┆ took   ┆ worker            ┆ error                     │
//! ╞═════════════════╪═════════╪═════════╪══════════════╪════════╪═══════════════════╪═══════════════════════════╡
//! │ order           ┆       1 ┆ yes     ┆ 02:04:45.463 ┆  11 ms ┆ vm-24120-3ec20935 ┆                           │
//! │ shipment        ┆       1 ┆ yes     ┆ 02:04:45.463 ┆  18 ms ┆ vm-24120-3ec20935 ┆                           │
//! │ invoice         ┆       1 ┆ no      ┆ 02:04:45.463 ┆ 485 ms ┆ vm-24120-3ec20935 ┆ nobody may owe 5000       │
//! │ shipment (undo) ┆       1 ┆ no      ┆ 02:04:45.950 ┆ 234 ms ┆ vm-24120-3ec20935 ┆ the depot does not answer │
//! │ invoice (undo)  ┆       1 ┆ yes     ┆ 02:04:45.950 ┆ 239 ms ┆ vm-24120-3ec20935 ┆                           │
//! │ order (undo)    ┆       1 ┆ yes     ┆ 02:04:45.950 ┆ 240 ms ┆ vm-24120-3ec20935 ┆                           │
//! │ shipment (undo) ┆       2 ┆ yes     ┆ 02:04:46.370 ┆  14 ms ┆ vm-24120-3ec20935 ┆                           │
//! └─────────────────┴─────────┴─────────┴──────────────┴────────┴───────────────────┴───────────────────────────┘
//! ```

use bson::{Document, doc};
use clap::Parser;
use milestone_examples::{mongo, table::report};
use milestone_runtime::prelude::*;
use mongodb::{Collection, Database};

/// The actions, and the collections into which they insert.
const PARTS: [&str; 3] = ["order", "invoice", "shipment"];

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone((order, invoice, shipment))]
struct Purchase {
    number: i64,
    price: i64,
}

#[action(idempotent, undo = remove)]
async fn order(
    Params(purchase): Params<Purchase>,
    database: State<Database>,
    cx: Context,
) -> Result<(), ActionError> {
    insert(&cx, &database, purchase).await
}

/// Fails for good where the price is too high.
#[action(idempotent, undo = remove)]
async fn invoice(
    Params(purchase): Params<Purchase>,
    database: State<Database>,
    cx: Context,
) -> Result<(), ActionError> {
    if purchase.price > 1_000 {
        return Err(ActionError::fatal(format!(
            "nobody may owe {}",
            purchase.price
        )));
    }
    insert(&cx, &database, purchase).await
}

#[action(idempotent, undo = remove)]
async fn shipment(
    Params(purchase): Params<Purchase>,
    database: State<Database>,
    cx: Context,
) -> Result<(), ActionError> {
    insert(&cx, &database, purchase).await
}

/// Inserts a document, once however often the action runs.
async fn insert(cx: &Context, database: &Database, purchase: Purchase) -> Result<(), ActionError> {
    let document = doc! { "number": purchase.number, "price": purchase.price };
    let documents = documents(database, cx.action());
    cx.once(&documents).insert_one(document).await?;
    Ok(())
}

/// Removes what an action has inserted; if it has not yet, it never will. The first attempt to remove a shipment fails.
#[action(idempotent, retry(base = "200ms"))]
async fn remove(database: State<Database>, cx: Context) -> Result<(), ActionError> {
    if cx.action() == "shipment" && cx.attempt() == 1 {
        return Err(ActionError::new("the depot does not answer"));
    }
    let documents = documents(&database, cx.action());
    cx.once(&documents).undo().delete_one(doc! {}).await?;
    Ok(())
}

fn documents(database: &Database, collection: &str) -> Collection<Document> {
    database.collection(collection)
}

/// Stores two purchases, the second of which is undone.
#[derive(Parser)]
struct Args {
    /// Where documents and milestones are: `mongodb://HOST/DATABASE`
    #[arg(long, default_value = mongo::DEFAULT_URI)]
    uri: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let database = mongo::database(&args.uri).await?;
    let runtime = Runtime::builder(&args.uri)
        .state(database.clone())
        .build()
        .await?;
    runtime.spawn();
    println!("{}", runtime.server());
    for (number, price) in [(1, 50), (2, 5_000)] {
        let purchase = Purchase { number, price };
        let milestone = purchase.start(&runtime).await?;
        let record = milestone.ended().await?;
        let mut found = Vec::new();
        for part in PARTS {
            let of_it = doc! { "number": number };
            let count = documents(&database, part).count_documents(of_it).await?;
            found.push(format!("{count} {part}"));
        }
        let (state, found) = (record.state, found.join(", "));
        println!("a purchase of {price} is {state}; documents: {found}");
        if number == 2 {
            println!("{}", report(&record));
        }
    }
    Ok(())
}
