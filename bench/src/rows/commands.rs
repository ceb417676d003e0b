//! The two commands by which many documents can be changed at once: `update`, which the runtime sends, and `bulkWrite`, which newer
//! servers have. Nothing of the runtime is measured here; it is what its choice rests on.

use std::time::Instant;

use anyhow::{Result, ensure};
use bson::{Document, doc, oid::ObjectId};
use futures_util::future::try_join_all;
use mongodb::{
    Client, Namespace,
    options::{UpdateOneModel, WriteConcern, WriteModel},
};

use crate::{bench::Bench, row::Row, statistics::median};

/// How many statements a command has.
const BATCH: usize = 64;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let documents = bench.pick(6_400, 2_560, 512);
    let mut rows = Vec::new();
    for in_flight in [1, 2, 4, 8] {
        let changes = Changes::new(bench, documents, in_flight).await?;
        let (mut by_update, mut by_bulk_write) = (Vec::new(), Vec::new());
        let mut rev = 0;
        for _ in 0..bench.pick(7, 3, 1) {
            by_update.push(changes.per_second(Kind::Update, rev).await?);
            by_bulk_write.push(changes.per_second(Kind::BulkWrite, rev + 1).await?);
            rev += 2;
        }
        let name = format!("bulkWrite beside update, {in_flight} in flight");
        let (update, bulk_write) = (median(&by_update), median(&by_bulk_write));
        rows.push(Row::against(name, "changes/s", update, bulk_write).note(format!(
            "both by the raw driver, {BATCH} documents a command, by `_id`, token and `rev`, four fields set; the floor is the command that the runtime sends"
        )));
    }
    Ok(rows)
}

#[derive(Clone, Copy)]
enum Kind {
    Update,
    BulkWrite,
}

/// Documents that are changed again and again.
struct Changes {
    client: Client,
    namespace: Namespace,
    concern: WriteConcern,
    ids: Vec<ObjectId>,
    in_flight: usize,
}

impl Changes {
    async fn new(bench: &Bench, documents: usize, in_flight: usize) -> Result<Self> {
        let database = bench.database().database;
        let ids: Vec<_> = (0..documents).map(|_| ObjectId::new()).collect();
        for part in ids.chunks(500) {
            let new = part.iter().map(|id| {
                doc! {
                    "_id": id, "token": "t", "rev": 0_i64, "parameters": "x".repeat(200),
                    "actions": [{ "name": "first", "state": "running" }, { "name": "second", "state": "pending" }],
                }
            });
            let collection = database.collection::<Document>("changed");
            collection.insert_many(new).await?;
        }
        let mut concern = WriteConcern::majority();
        concern.journal = Some(true);
        Ok(Self {
            client: bench.client.clone(),
            namespace: Namespace::new(database.name(), "changed"),
            concern,
            ids,
            in_flight,
        })
    }

    async fn per_second(&self, kind: Kind, rev: i64) -> Result<f64> {
        let lanes = self.ids.chunks(self.ids.len().div_ceil(self.in_flight));
        let began = Instant::now();
        try_join_all(lanes.map(async |lane| {
            for ids in lane.chunks(BATCH) {
                let changed = match kind {
                    Kind::Update => self.update(ids, rev).await?,
                    Kind::BulkWrite => self.bulk_write(ids, rev).await?,
                };
                ensure!(
                    changed == ids.len(),
                    "{changed} of {} were changed",
                    ids.len()
                );
            }
            Ok(())
        }))
        .await?;
        Ok(count(self.ids.len()) / began.elapsed().as_secs_f64())
    }

    async fn update(&self, ids: &[ObjectId], rev: i64) -> Result<usize> {
        let statements = ids.iter().map(|id| {
            let (q, u) = change(*id, rev);
            doc! { "q": q, "u": u }
        });
        let command = doc! {
            "update": &self.namespace.coll, "updates": statements.collect::<Vec<_>>(), "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let database = self.client.database(&self.namespace.db);
        let reply = database.run_command(command).await?;
        let matched = reply.get_i64("n");
        let matched = matched.or_else(|_| reply.get_i32("n").map(i64::from))?;
        Ok(usize::try_from(matched)?)
    }

    async fn bulk_write(&self, ids: &[ObjectId], rev: i64) -> Result<usize> {
        let models = ids.iter().map(|id| {
            let (filter, update) = change(*id, rev);
            let model = UpdateOneModel::builder().namespace(self.namespace.clone());
            WriteModel::UpdateOne(model.filter(filter).update(update).build())
        });
        let models: Vec<_> = models.collect();
        let write = self.client.bulk_write(models).ordered(false);
        let result = write.write_concern(self.concern.clone()).await?;
        Ok(usize::try_from(result.matched_count)?)
    }
}

fn change(id: ObjectId, rev: i64) -> (Document, Document) {
    let set = doc! {
        "rev": rev + 1, "actions.0.state": "completed", "actions.0.output": 200_i64, "actions.1.state": "running",
    };
    (
        doc! { "_id": id, "token": "t", "rev": rev },
        doc! { "$set": set },
    )
}

#[expect(clippy::cast_precision_loss, reason = "some thousands")]
fn count(documents: usize) -> f64 {
    documents as f64
}
