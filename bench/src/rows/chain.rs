//! One long milestone: what a step costs, and whether that grows with the steps before it.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use anyhow::{Result, ensure};
use bson::Document;
use milestone_runtime::{
    Method, Runtime,
    action::{ActionError, Call, Options},
    dynamic::Action,
};

use crate::{
    bench::Bench,
    floor::{Raw, Template},
    graphs::Payload,
    row::{Row, Target},
    statistics::{median, ms},
};

/// How many steps stand for the one in their middle.
const WINDOW: usize = 20;

/// The steps of the chain that is run before it is measured.
const WARM_UP: usize = 10;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let short = Measured::on_mongodb(bench, 10, bench.pick(100, 40, 2)).await?;
    let steps = bench.pick(1_000, 1_000, 3 * WINDOW);
    let long = Measured::on_mongodb(bench, steps, bench.pick(3, 1, 1)).await?;
    let embedded = Measured::on_sqlite(bench, steps, bench.pick(3, 1, 1)).await?;
    Ok(vec![
        short.per_action(10),
        long.per_action(steps),
        long.end_against_beginning(format!("chain of {steps}, step {steps} against step 10"))
            .target(Target::AtMost(1.2)),
        embedded
            .end_against_beginning(format!(
                "chain of {steps}, embedded, step {steps} against step 10"
            ))
            .note("the embedded store writes the whole document at each step"),
    ])
}

/// Milliseconds from step to step, of several chains one behind the other; of the raw driver and of the runtime.
struct Measured {
    steps: usize,
    floor: Vec<Vec<f64>>,
    ours: Vec<Vec<f64>>,
    /// Bytes of the document, when it is inserted and at its end.
    sizes: [usize; 2],
}

impl Measured {
    async fn on_mongodb(bench: &Bench, steps: usize, chains: usize) -> Result<Self> {
        let began = Beginnings::default();
        let template = Template::record(
            bench,
            64,
            steps,
            [began.step()],
            async |runtime: &Runtime| chain_of(runtime, steps).await,
        )
        .await?;
        let raw = Raw::open(bench).await?;
        let runtime = Runtime::builder(bench.database().uri).build().await?;
        runtime.register(began.step())?;
        runtime.spawn();
        let mut measured = Self {
            steps,
            floor: Vec::new(),
            ours: Vec::new(),
            sizes: [0, 0],
        };
        // It opens the connections.
        began.of_chain(&runtime, WARM_UP).await?;
        for _ in 0..chains {
            let writes = template.writes()?;
            raw.insert(std::slice::from_ref(&writes.insert)).await?;
            let mut times = Vec::with_capacity(steps);
            for statement in &writes.updates {
                let sent = Instant::now();
                raw.update([statement]).await?;
                times.push(ms(sent.elapsed()));
            }
            measured.sizes = [
                writes.insert.as_bytes().len(),
                raw.read(&writes).await?.to_vec()?.len(),
            ];
            let gaps = began.of_chain(&runtime, steps).await?;
            measured.floor.push(times);
            measured.ours.push(gaps);
        }
        runtime.shutdown().await;
        Ok(measured)
    }

    async fn on_sqlite(bench: &Bench, steps: usize, chains: usize) -> Result<Self> {
        let began = Beginnings::default();
        let uri = format!("sqlite:{}", bench.file().display());
        let runtime = Runtime::builder(uri).build().await?;
        runtime.register(began.step())?;
        runtime.spawn();
        let mut ours = Vec::new();
        for _ in 0..chains {
            ours.push(began.of_chain(&runtime, steps).await?);
        }
        runtime.shutdown().await;
        Ok(Self {
            steps,
            floor: Vec::new(),
            ours,
            sizes: [0, 0],
        })
    }

    fn per_action(&self, steps: usize) -> Row {
        let (floor, ours) = (median(&self.floor.concat()), median(&self.ours.concat()));
        Row::against(format!("chain of {steps}, per action"), "ms", floor, ours)
            .target(Target::AtMost(1.25))
            .note(format!(
                "from the beginning of a step to that of the next, median of {} chains; the floor carries out the runtime's own updates, \
                 one a command, on a document alike",
                self.ours.len()
            ))
    }

    /// The figure of the last steps, with that of the first ones as its floor.
    fn end_against_beginning(&self, name: String) -> Row {
        let (beginning, end) = (0..WINDOW, self.steps - 1 - WINDOW..self.steps - 1);
        let ours = [&beginning, &end].map(|part| middle(&self.ours, part));
        let row = Row::against(name, "ms", ours[0], ours[1]).note(format!(
            "medians of the first {WINDOW} steps and of the last {WINDOW}, of {} chains",
            self.ours.len()
        ));
        if self.floor.is_empty() {
            return row;
        }
        let raw = [&beginning, &end].map(|part| middle(&self.floor, part));
        row.note(format!(
            "the same updates by the raw driver: {:.3} ms at the end, {:.3} ms at the beginning, ratio {:.2}; the document has {} KiB at the \
             beginning and {} KiB at the end",
            raw[1],
            raw[0],
            raw[1] / raw[0],
            self.sizes[0] / 1024,
            self.sizes[1] / 1024
        ))
    }
}

/// The median of a part of all chains.
fn middle(chains: &[Vec<f64>], part: &Range<usize>) -> f64 {
    let parts: Vec<_> = chains.iter().map(|chain| &chain[part.clone()]).collect();
    median(&parts.concat())
}

/// When the steps of a chain began.
#[derive(Clone, Default)]
struct Beginnings(Arc<Mutex<Vec<Instant>>>);

impl Beginnings {
    /// The action that notes it.
    fn step(&self) -> Method {
        let began = self.clone();
        let step = move |_call: Call| {
            began.note();
            async { Ok::<_, ActionError>(()) }
        };
        Method::new("step", step).options(Options::idempotent())
    }

    fn note(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Instant::now());
    }

    /// Runs a chain, and tells how many milliseconds passed from step to step.
    async fn of_chain(&self, runtime: &Runtime, steps: usize) -> Result<Vec<f64>> {
        self.take();
        chain_of(runtime, steps).await?;
        let began = self.take();
        ensure!(
            began.len() == steps,
            "{} steps began in a chain of {steps}",
            began.len()
        );
        let gaps = began.windows(2).map(|pair| ms(pair[1] - pair[0]));
        Ok(gaps.collect())
    }

    fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a chain of so many steps from its start to its outcome.
async fn chain_of(runtime: &Runtime, steps: usize) -> Result<()> {
    let step = |number: usize| Action::new(format!("step-{number}")).method("step");
    let last = step(steps);
    let graph = (1..steps)
        .rev()
        .fold(last, |after, number| step(number).next([after]));
    let started = runtime.start("chain", graph, Payload::new()).await?;
    let _: Document = started.outcome().await?;
    Ok(())
}
