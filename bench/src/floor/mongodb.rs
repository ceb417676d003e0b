//! The raw driver.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, ensure};
use bson::{Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use milestone_runtime::{Runtime, store::mongodb::DEFAULT_COLLECTION};
use mongodb::{
    Client, Collection, Database,
    options::{ClientOptions, WriteConcern},
};
use tokio::task::JoinSet;

use super::{Template, Writes};
use crate::{
    bench::Bench,
    conditions::BATCH,
    spent::{Meter, Spent},
};

/// How long the server may look for its majority, as the runtime says it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server may not answer before it counts as gone.
const STANDSTILL: Duration = Duration::from_mins(1);

/// A client of the raw driver with the write concern of the runtime, on an empty collection with the runtime's indexes.
#[derive(Clone)]
pub(crate) struct Raw {
    database: Database,
    milestones: Collection<RawDocumentBuf>,
}

impl Raw {
    pub(crate) async fn open(bench: &Bench) -> Result<Self> {
        let scratch = bench.database();
        // It makes the collection and its indexes.
        drop(Runtime::builder(&scratch.uri).client().build().await?);
        let mut options = ClientOptions::parse(&scratch.uri).await?;
        let mut concern = WriteConcern::majority();
        concern.journal = Some(true);
        concern.w_timeout = Some(PATIENCE);
        options.write_concern = Some(concern);
        // A machine that stands still for a while makes the runtime wait, and is not to end the benchmark either.
        options.connect_timeout = Some(STANDSTILL);
        let database = Client::with_options(options)?.database(scratch.database.name());
        Ok(Self {
            milestones: database.collection(DEFAULT_COLLECTION),
            database,
        })
    }

    /// Stores documents in one command.
    pub(crate) async fn insert(&self, documents: &[RawDocumentBuf]) -> Result<()> {
        self.milestones
            .insert_many(documents)
            .ordered(false)
            .await?;
        Ok(())
    }

    /// Carries out statements in one command; an error if one of them matched nothing.
    pub(crate) async fn update<'a>(
        &self,
        statements: impl IntoIterator<Item = &'a RawDocumentBuf>,
    ) -> Result<()> {
        self.send(statements, false).await
    }

    /// The same where a statement rests on the one before it.
    pub(crate) async fn update_in_order(&self, statements: &[RawDocumentBuf]) -> Result<()> {
        self.send(statements, true).await
    }

    async fn send<'a>(
        &self,
        statements: impl IntoIterator<Item = &'a RawDocumentBuf>,
        ordered: bool,
    ) -> Result<()> {
        let mut updates = RawArrayBuf::new();
        let mut count = 0;
        for statement in statements {
            updates.push(statement.clone());
            count += 1;
        }
        let command = rawdoc! {
            "update": self.milestones.name(),
            "updates": updates,
            "ordered": ordered,
            "writeConcern": { "w": "majority", "j": true, "wtimeout": 10_000_i64 },
        };
        let reply = self.database.run_raw_command(command).await?;
        let matched = reply.get("n").and_then(integer);
        ensure!(
            matched == Some(count) && !reply.contains_key("writeErrors"),
            "of {count} statements of the floor, some changed nothing: {reply}"
        );
        Ok(())
    }

    /// All writes of milestones, one command after the other.
    pub(crate) async fn one_by_one(&self, writes: &Writes) -> Result<()> {
        self.insert(std::slice::from_ref(&writes.insert)).await?;
        for statement in &writes.updates {
            self.update([statement]).await?;
        }
        Ok(())
    }

    /// So many milestones in batches: an insert for each batch, then its updates. So many commands are in flight.
    pub(crate) async fn in_batches(
        &self,
        template: &Template,
        count: usize,
        in_flight: usize,
    ) -> Result<Spent> {
        let mut batches = Vec::new();
        for begin in (0..count).step_by(BATCH) {
            batches.push(Batch::new(template, BATCH.min(count - begin))?);
        }
        // They open the connections.
        let first = (0..in_flight).map(|_| Batch::new(template, BATCH.min(count)));
        self.send_batches(first.collect::<Result<_>>()?, in_flight)
            .await?;
        let meter = Meter::start();
        self.send_batches(batches, in_flight).await?;
        Ok(meter.stop())
    }

    async fn send_batches(&self, batches: Vec<Batch>, in_flight: usize) -> Result<()> {
        let batches = Arc::new(Mutex::new(batches));
        let mut senders = JoinSet::new();
        for _ in 0..in_flight {
            let (raw, batches) = (self.clone(), Arc::clone(&batches));
            senders.spawn(async move {
                loop {
                    let next = batches.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some(batch) = next else {
                        return anyhow::Ok(());
                    };
                    raw.insert(&batch.inserts).await?;
                    for statements in &batch.updates {
                        raw.update(statements).await?;
                    }
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender??;
        }
        Ok(())
    }

    /// What a milestone's document is after each of its writes.
    pub(crate) async fn states(&self, writes: &Writes) -> Result<Vec<Document>> {
        let mut states = Vec::with_capacity(1 + writes.updates.len());
        self.insert(std::slice::from_ref(&writes.insert)).await?;
        states.push(self.read(writes).await?);
        for statement in &writes.updates {
            self.update([statement]).await?;
            states.push(self.read(writes).await?);
        }
        Ok(states)
    }

    /// The document of a milestone as it is now.
    pub(crate) async fn read(&self, writes: &Writes) -> Result<Document> {
        let id = writes.insert.get_object_id("_id")?;
        let found = self.milestones.find_one(doc! { "_id": id }).await?;
        let found =
            found.ok_or_else(|| anyhow::anyhow!("the milestone {id} of the floor is gone"))?;
        Ok(Document::try_from(found)?)
    }
}

/// The writes of some milestones, by command.
struct Batch {
    inserts: Vec<RawDocumentBuf>,
    updates: Vec<Vec<RawDocumentBuf>>,
}

impl Batch {
    fn new(template: &Template, size: usize) -> Result<Self> {
        let mut batch = Self {
            inserts: Vec::with_capacity(size),
            updates: vec![Vec::with_capacity(size); template.updates()],
        };
        for _ in 0..size {
            let writes = template.writes()?;
            batch.inserts.push(writes.insert);
            for (command, statement) in batch.updates.iter_mut().zip(writes.updates) {
                command.push(statement);
            }
        }
        Ok(batch)
    }
}

fn integer(value: &bson::Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}
