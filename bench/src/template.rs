//! Milestones in bulk, each a copy of one that the runtime has stored.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Document, RawDocumentBuf, doc, oid::ObjectId};
use mongodb::{
    Collection, Database,
    error::{Error, ErrorKind},
};

use crate::{
    bench::Bench,
    worker::{
        Job, Order, Process,
        ours::{Client, Parcel, STEP, STRUGGLE, bare, step},
    },
};

/// The collection of milestones.
pub(crate) const MILESTONES: &str = "_milestones_";

/// The collection in which a process finds the one to copy.
pub(crate) const TEMPLATES: &str = "templates";

/// How many documents one command inserts.
const BATCH: usize = 1_000;

/// A milestone that is due.
pub(crate) async fn due(bench: &Bench) -> Result<Document> {
    let scratch = bench.database();
    let client = Client::new(&scratch.uri).await?;
    client.0.start("Parcel", STEP, Parcel::now()).await?;
    one_of(&scratch.database).await
}

/// A milestone that has been completed.
pub(crate) async fn finished(bench: &Bench) -> Result<Document> {
    let scratch = bench.database();
    let runtime = bare(&scratch.uri).register(step(|_| {})).build().await?;
    runtime.spawn();
    let started = runtime.start("Parcel", STEP, Parcel::now()).await?;
    started.ended().await?;
    runtime.shutdown().await;
    one_of(&scratch.database).await
}

/// A milestone that has failed once, and is tried again in an hour.
pub(crate) async fn waiting(bench: &Bench) -> Result<Document> {
    let scratch = bench.database();
    let mut worker = Process::start(&Job::Worker {
        uri: scratch.uri.clone(),
        places: 1,
    })
    .await?;
    worker.ask(Order::Work).await?;
    let client = Client::new(&scratch.uri).await?;
    client.0.start("Parcel", STRUGGLE, Parcel::now()).await?;
    let milestones = scratch.database.collection::<Document>(MILESTONES);
    loop {
        let waiting = doc! { "state": "waiting", "lease": null };
        if let Some(found) = milestones.find_one(waiting).await? {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Stores so many copies, which differ in their ids.
pub(crate) async fn fill(
    milestones: &Collection<RawDocumentBuf>,
    template: &Document,
    count: usize,
) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        let copies = (0..batch).map(|_| {
            let mut copy = template.clone();
            copy.insert("_id", ObjectId::new());
            Ok(RawDocumentBuf::try_from(&copy)?)
        });
        let copies = copies.collect::<Result<Vec<_>>>()?;
        match milestones.insert_many(copies).ordered(false).await {
            Err(error) if !is_there(&error) => return Err(error.into()),
            _ => left -= batch,
        }
    }
    Ok(())
}

/// Whether all that an insert was refused for is that the copies are there: the driver has sent it twice, as the first reply was late.
fn is_there(error: &Error) -> bool {
    const DUPLICATE_KEY: i32 = 11_000;
    match &*error.kind {
        ErrorKind::InsertMany(refused) => {
            let errors = refused.write_errors.as_deref().unwrap_or_default();
            refused.write_concern_error.is_none()
                && errors.iter().all(|error| error.code == DUPLICATE_KEY)
        }
        _ => false,
    }
}

async fn one_of(database: &Database) -> Result<Document> {
    let found = database
        .collection::<Document>(MILESTONES)
        .find_one(doc! {})
        .await?;
    found.context("the milestone to copy is not stored")
}
