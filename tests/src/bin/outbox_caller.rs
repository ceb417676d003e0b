//! A process that writes an order and starts its shipment in one transaction, says so, and hangs until it is killed: before the commit or
//! after it. `outbox_caller URI before|after`.

use anyhow::Context as _;
use bson::{Document, doc};
use milestone_runtime::{Runtime, dynamic::Action};
use mongodb::Client;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().context("the URI is missing")?;
    let moment = arguments.next().context("the moment is missing")?;
    let runtime = Runtime::builder(&uri).client().build().await?;
    let client = Client::with_uri_str(&uri).await?;
    let database = client
        .default_database()
        .context("the URI names a database")?;
    let mut session = client.start_session().await?;
    session.start_transaction().await?;
    let order = doc! { "_id": "o-1" };
    let orders = database.collection::<Document>("orders");
    orders.insert_one(order).session(&mut session).await?;
    let start = runtime.start(
        "Shipment",
        Action::new("ship").idempotent(),
        doc! { "order": "o-1" },
    );
    start.id("o-1").start_in(&mut session).await?;
    if moment == "after" {
        session.commit_transaction().await?;
    }
    println!("ready");
    std::future::pending::<()>().await;
    Ok(())
}
