//! How fast a sequence is, beside what the driver does alone.

use std::time::Instant;

use bson::{Document, doc};
use comfy_table::Table;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use milestone_runtime::mongo::Sequence;
use mongodb::{Database, options::ReturnDocument};

use crate::table::{number, table};

/// How many ids a second there are, one call after the other and with 64 under way.
///
/// # Errors
/// If the database does not answer.
pub async fn rates(database: &Database) -> anyhow::Result<Table> {
    let numbers = Sequence::monthly("measured").on(database)?;
    let counters = &database.collection::<Document>("counters");
    let raw = async || -> anyhow::Result<()> {
        let count =
            counters.find_one_and_update(doc! { "_id": "raw" }, doc! { "$inc": { "last": 1_i64 } });
        count
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        Ok(())
    };
    let next = async || Ok(numbers.next().await.map(drop)?);
    let many = async || Ok(numbers.next_n(100).await.map(drop)?);
    let mut table = table(["ids per second", "one by one", "64 at once"]);
    table.add_row([
        "findOneAndUpdate".into(),
        number(rate(1, 1, &raw).await?),
        number(rate(64, 1, &raw).await?),
    ]);
    table.add_row([
        "next()".into(),
        number(rate(1, 1, &next).await?),
        number(rate(64, 1, &next).await?),
    ]);
    table.add_row([
        "next_n(100)".into(),
        number(rate(1, 100, &many).await?),
        number(rate(64, 100, &many).await?),
    ]);
    Ok(table)
}

async fn rate(
    at_once: usize,
    ids: u32,
    call: &impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    const CALLS: u32 = 500;
    let began = Instant::now();
    let calls = stream::iter(0..CALLS).map(|_| call());
    calls
        .buffer_unordered(at_once)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(format!(
        "{:.0}",
        f64::from(CALLS * ids) / began.elapsed().as_secs_f64()
    ))
}
