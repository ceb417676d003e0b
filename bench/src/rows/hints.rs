//! A start in one process, seen by another one.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bson::{Document, doc};
use futures_util::StreamExt as _;
use milestone_runtime::Runtime;
use mongodb::change_stream::ChangeStream;
use tokio::sync::mpsc;

use crate::{
    bench::Bench,
    row::{Row, Target},
    statistics::{median, ms, percentile},
    template::{self, MILESTONES, TEMPLATES},
    worker::{
        Job, Order, Process,
        ours::{Parcel, age, bare, step},
        raw::Queue,
    },
};

/// Whoever waits longer waits in vain; a machine may stand still for minutes.
const PATIENCE: Duration = Duration::from_mins(5);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let (rounds, starts) = bench.pick((5, 100), (3, 40), (1, 3));
    let mut floor = Floor::new(bench).await?;
    let mut ours = Ours::new(&bench.database().uri).await?;
    let (mut floors, mut times) = (Vec::new(), Vec::new());
    let (mut floor_all, mut all) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let floors_of_it = floor.measure(starts).await?;
        let times_of_it = ours.measure(starts).await?;
        floors.push(median(&floors_of_it));
        times.push(median(&times_of_it));
        floor_all.extend(floors_of_it);
        all.extend(times_of_it);
    }
    let floor_slowest = percentile(&floor_all, 99);
    let name = "started by another process, hints on";
    let mut rows = vec![
        Row::against(format!("{name}: until the body begins"), "ms", median(&floors), median(&times))
            .target(Target::AtMost(1.5))
            .note(format!(
                "{rounds} rounds of {starts} starts, one by one, from before the start to the first instruction of the body; the floor is an \
                 insert in another process, seen by a change stream of the raw driver, one query for the document and one update that takes it"
            )),
        Row::alone(format!("{name}: p99"), "ms", percentile(&all, 99))
            .target(Target::Below(50.0))
            .note(format!("of {} starts; that of the floor is {floor_slowest:.2} ms", all.len())),
    ];
    drop(ours);
    let file = format!("sqlite:{}", bench.file().display());
    let embedded = Ours::new(&file).await?.measure(starts * rounds).await?;
    rows.push(
        Row::alone(
            "started by another process, embedded: until the body begins",
            "ms",
            median(&embedded),
        )
        .note(format!(
            "{} starts, one by one; p99 {:.2} ms; the worker looks at the file's `data_version`",
            embedded.len(),
            percentile(&embedded, 99)
        )),
    );
    Ok(rows)
}

/// So long that whoever worked is idle again, and never in step with anything.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(15..45))).await;
}

/// A worker in this process, and a client in another one.
struct Ours {
    _worker: Runtime,
    client: Process,
    begun: mpsc::UnboundedReceiver<Duration>,
}

impl Ours {
    async fn new(uri: &str) -> Result<Self> {
        let (tell, begun) = mpsc::unbounded_channel();
        let step = step(move |parameters| {
            // At the end nobody listens any more.
            let _ = tell.send(Parcel::age(parameters));
        });
        let worker = bare(uri).register(step).build().await?;
        worker.spawn();
        let client = Process::start(&Job::Client {
            uri: uri.to_owned(),
        })
        .await?;
        let mut ours = Self {
            _worker: worker,
            client,
            begun,
        };
        // The first ones open connections.
        ours.measure(5).await?;
        Ok(ours)
    }

    async fn measure(&mut self, starts: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(starts);
        for _ in 0..starts {
            pause().await;
            self.client.tell(Order::Start).await?;
            let begun = tokio::time::timeout(PATIENCE, self.begun.recv()).await;
            times.push(ms(begun?.context("the worker has ended")?));
            self.client.answer().await?;
        }
        Ok(times)
    }
}

/// The raw driver, which listens here and inserts in another process.
struct Floor {
    queue: Queue,
    client: Process,
    changes: ChangeStream<Document>,
}

impl Floor {
    async fn new(bench: &Bench) -> Result<Self> {
        let scratch = bench.database();
        let template = template::due(bench).await?;
        let templates = scratch.database.collection(TEMPLATES);
        templates.insert_one(template).await?;
        // It makes the collection and its indexes.
        drop(bare(&scratch.uri).client().build().await?);
        let inserts = [
            doc! { "$match": { "operationType": "insert" } },
            doc! { "$project": { "_id": 1 } },
        ];
        let milestones = scratch.database.collection::<Document>(MILESTONES);
        let changes = milestones.watch().pipeline(inserts).await?.with_type();
        let client = Process::start(&Job::RawClient {
            uri: scratch.uri.clone(),
            database: scratch.database.name().to_owned(),
        })
        .await?;
        let queue = Queue::new(&scratch.database, 1);
        let mut floor = Self {
            queue,
            client,
            changes,
        };
        floor.measure(5).await?;
        Ok(floor)
    }

    async fn measure(&mut self, starts: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(starts);
        for _ in 0..starts {
            pause().await;
            self.client.tell(Order::Start).await?;
            let change = tokio::time::timeout(PATIENCE, self.changes.next()).await;
            change?.context("the change stream has ended")??;
            let taken = self.queue.take(1).await?;
            let [milestone] = &taken.milestones[..] else {
                bail!("the raw driver does not find what was inserted");
            };
            times.push(ms(age(milestone.sent)));
            self.queue.complete(taken).await?;
            self.client.answer().await?;
        }
        Ok(times)
    }
}
