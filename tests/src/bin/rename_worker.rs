//! A process that renames the user `ann` and hangs in the middle of its fan-out until it is killed: `rename_worker URI NAME`.

use std::time::Duration;

use anyhow::Context as _;
use bson::doc;
use milestone_runtime::Runtime;
use milestone_tests::renaming::Blog;
use mongodb::Client;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().context("the URI is missing")?;
    let name = arguments.next().context("the name is missing")?;
    let client = Client::with_uri_str(&uri).await?;
    let database = client
        .default_database()
        .context("the URI names a database")?;
    let names = Blog::new(&database).names(async |_| {
        println!("copying");
        std::future::pending::<()>().await;
    });
    let runtime = Runtime::builder(&uri)
        .lease(Duration::from_secs(1))
        .field_sync(&names);
    let runtime = runtime.build().await?;
    runtime.spawn();
    let fan_out = names
        .update(&runtime, "ann", doc! { "$set": { "name": name } })
        .await?;
    fan_out.outcome().await?;
    Ok(())
}
