//! The raw driver doing by hand what a worker of milestones does: taking what is due, and completing it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use futures_util::TryStreamExt as _;
use mongodb::{
    Collection, Database,
    options::{Acknowledgment, WriteConcern},
};

use super::{Answer, ours::micros};
use crate::template::{MILESTONES, TEMPLATES};

/// How long a lease lasts, in milliseconds.
const LEASE: i64 = 10_000;

/// The milestones of a database, seen by the raw driver.
pub(crate) struct Queue {
    database: Database,
    milestones: Collection<Document>,
    /// How many candidates are read for one that is taken, so that several processes do not fight over the first ones.
    spread: usize,
}

/// Milestones that were taken.
pub(crate) struct Taken {
    token: String,
    pub(crate) milestones: Vec<Milestone>,
    /// How many were seen and taken by another process in between.
    missed: usize,
}

/// What the raw driver knows of a milestone.
pub(crate) struct Milestone {
    id: Bson,
    rev: i64,
    /// When it was sent, in microseconds since 1970.
    pub(crate) sent: i64,
}

/// A milestone and how it is changed.
struct Statement {
    filter: Document,
    update: Document,
}

impl Queue {
    pub(crate) fn new(database: &Database, spread: usize) -> Self {
        Self {
            database: database.clone(),
            milestones: database.collection(MILESTONES),
            spread,
        }
    }

    /// Takes up to so many of those that are due: one query for the documents, one command that takes them by `_id`.
    pub(crate) async fn take(&self, most: usize) -> Result<Taken> {
        let now = DateTime::now();
        let until = DateTime::from_millis(now.timestamp_millis() + LEASE);
        let token = ObjectId::new().to_hex();
        let limit = u32::try_from(most * self.spread)?;
        let due = doc! { "next.queue": "default", "next.at": { "$lte": now }, "lease": null };
        let find = self.milestones.find(due).sort(doc! { "next.at": 1 });
        let find = find.limit(i64::from(limit)).batch_size(limit);
        let mut found: Vec<Document> = find.await?.try_collect().await?;
        if self.spread > 1 {
            fastrand::shuffle(&mut found);
            found.truncate(most);
        }
        let mut milestones = found
            .iter()
            .map(Milestone::read)
            .collect::<Result<Vec<_>>>()?;
        let taking: Vec<_> = milestones
            .iter_mut()
            .map(|Milestone { id, rev, .. }| {
                let filter = doc! { "_id": id.clone(), "rev": *rev, "lease": null };
                *rev += 1;
                let lease = doc! { "owner": "raw", "token": &token, "since": now, "until": until };
                let due = [doc! { "queue": "default", "at": until, "method": "" }];
                let set = doc! { "rev": *rev, "epoch": 1_i64, "lease": lease, "next.at": until, "due": due };
                Statement { filter, update: doc! { "$set": set } }
            })
            .collect();
        let seen = taking.len();
        if self.update(taking).await? < seen {
            let ids: Vec<_> = milestones.iter().map(|taken| taken.id.clone()).collect();
            let ours = doc! { "_id": { "$in": ids }, "lease.token": &token };
            let ours: Vec<Document> = self.milestones.find(ours).await?.try_collect().await?;
            milestones = ours.iter().map(Milestone::read).collect::<Result<_>>()?;
        }
        Ok(Taken {
            missed: seen - milestones.len(),
            token,
            milestones,
        })
    }

    /// Completes what was taken, in one command.
    pub(crate) async fn complete(&self, taken: Taken) -> Result<()> {
        let now = DateTime::now();
        let count = taken.milestones.len();
        let completing = taken.milestones.into_iter().map(|Milestone { id, rev, .. }| {
            let attempt = doc! {
                "action": "step", "number": 1_i64, "success": true, "beginDate": now, "endDate": now, "worker": "raw",
            };
            Statement {
                filter: doc! { "_id": id, "lease.token": &taken.token, "rev": rev },
                update: doc! {
                    "$set": {
                        "rev": rev + 1, "state": "completed", "beginDate": now, "endDate": now,
                        "actions.0.state": "completed", "actions.0.attempts": 1_i64, "actions.0.output": null,
                    },
                    "$unset": { "lease": "", "next": "" },
                    "$push": { "report": { "$each": [attempt], "$position": 0 } },
                },
            }
        });
        let changed = self.update(completing.collect()).await?;
        anyhow::ensure!(changed == count, "what was taken was taken away");
        Ok(())
    }

    /// Takes and completes until nothing is due.
    pub(crate) async fn drain(&self, batch: usize) -> Result<Answer> {
        let mut answer = Answer::default();
        let mut empty = 0;
        // The compatible server now and then finds nothing although there is something.
        while empty < 2 {
            let taken = self.take(batch).await?;
            answer.missed += taken.missed as u64;
            answer.done += taken.milestones.len() as u64;
            if taken.milestones.is_empty() {
                empty += usize::from(taken.missed == 0);
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
            empty = 0;
            self.complete(taken).await?;
        }
        Ok(answer)
    }

    /// Sends changes in one command, and tells how many found their document.
    async fn update(&self, statements: Vec<Statement>) -> Result<usize> {
        if statements.is_empty() {
            return Ok(0);
        }
        let updates: Vec<Document> = statements
            .into_iter()
            .map(|statement| doc! { "q": statement.filter, "u": statement.update })
            .collect();
        let command = doc! {
            "update": MILESTONES, "updates": updates, "ordered": false, "writeConcern": { "w": "majority", "j": true },
        };
        let reply = self.database.run_command(command).await?;
        if let Some(errors) = reply.get("writeErrors") {
            anyhow::bail!("the server refuses a change of the raw driver: {errors}");
        }
        let changed = reply.get_i32("n").context("the reply has no number")?;
        Ok(usize::try_from(changed)?)
    }
}

impl Milestone {
    fn read(document: &Document) -> Result<Self> {
        let id = document.get("_id").context("it has no id")?.clone();
        let rev = document.get_i64("rev").context("it has no `rev`")?;
        let parcel = document.get_document("parameters")?;
        let sent = parcel.get_i64("sent")?;
        Ok(Self { id, rev, sent })
    }
}

/// The raw driver, storing milestones as the runtime does.
pub(super) struct Client {
    milestones: Collection<Document>,
    template: Document,
}

impl Client {
    /// The template is found in the database.
    pub(super) async fn new(database: &Database) -> Result<Self> {
        let templates = database.collection::<Document>(TEMPLATES);
        let template = templates.find_one(doc! {}).await?;
        Ok(Self {
            milestones: database.collection(MILESTONES),
            template: template.context("there is no template")?,
        })
    }

    pub(super) async fn start(&self) -> Result<()> {
        let mut document = self.template.clone();
        document.insert("_id", ObjectId::new());
        document
            .get_document_mut("parameters")?
            .insert("sent", micros());
        let durable = WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(true)
            .build();
        self.milestones
            .insert_one(document)
            .write_concern(durable)
            .await?;
        Ok(())
    }
}
