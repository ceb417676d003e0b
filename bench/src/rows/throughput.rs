//! Many short milestones at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context as _, Result};
use milestone_runtime::Runtime;
use tokio::task::{JoinSet, spawn_blocking};

use crate::{
    bench::Bench,
    floor::{Embedded, Raw, Rows, Template},
    graphs::{Payload, chain_of_two},
    row::{Row, Target},
    spent::{Meter, Spent},
    statistics::median,
};

/// How many chains are between their start and their outcome at once.
const IN_FLIGHT: [usize; 2] = [64, 512];

/// How many commands of the floor are in flight; the best counts.
const COMMANDS: [usize; 4] = [1, 2, 4, 8];

const UNIT: &str = "milestones/s";

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let chain = async |runtime: &Runtime| chain_of_two(runtime, Payload::new()).await;
    let template = Template::record(bench, 64, 2, [], chain).await?;
    let mut rows = on_mongodb(bench, &template).await?;
    rows.extend(on_sqlite(bench, &template).await?);
    Ok(rows)
}

async fn on_mongodb(bench: &Bench, template: &Template) -> Result<Vec<Row>> {
    let count = bench.pick(5_000, 2_000, 20);
    let mut floors = COMMANDS.map(|_| Vec::new());
    let mut ours = IN_FLIGHT.map(|_| Vec::new());
    for _ in 0..bench.pick(3, 2, 1) {
        for (spent, commands) in floors.iter_mut().zip(COMMANDS) {
            let raw = Raw::open(bench).await?;
            spent.push(raw.in_batches(template, count, commands).await?);
        }
        for (spent, in_flight) in ours.iter_mut().zip(IN_FLIGHT) {
            spent.push(chains(bench.database().uri, in_flight, count).await?);
        }
        bench.clean().await?;
    }
    let floors = floors.map(|spent| Figures::of(&spent, count));
    let each: Vec<String> = floors
        .iter()
        .zip(COMMANDS)
        .map(|(floor, commands)| format!("{:.0} with {commands}", floor.rate))
        .collect();
    let (floor, commands) = floors
        .into_iter()
        .zip(COMMANDS)
        .max_by(|(left, _), (right, _)| left.rate.total_cmp(&right.rate))
        .context("there is a floor")?;
    let rows = ours.iter().zip(IN_FLIGHT).map(|(spent, in_flight)| {
        let name = format!("throughput, {in_flight} in flight");
        row(name, &floor, &Figures::of(spent, count), 0.75)
            .note(format!(
            "{count} chains of 2, started and run in one process; the floor inserts 64 documents, then updates them twice, by the very \
             statements of the runtime, {commands} such batches at once ({})",
            each.join(", ")
        ))
    });
    Ok(rows.collect())
}

async fn on_sqlite(bench: &Bench, template: &Template) -> Result<Vec<Row>> {
    let count = bench.pick(5_000, 2_000, 20);
    let states = Raw::open(bench).await?.states(&template.writes()?).await?;
    let rows = |count| -> Result<Vec<_>> { (0..count).map(|_| Rows::like(&states)).collect() };
    let mut floors = Vec::new();
    let mut ours = IN_FLIGHT.map(|_| Vec::new());
    for _ in 0..bench.pick(5, 3, 1) {
        let mut embedded = Embedded::open(&bench.file()).await?;
        // The log has its length before it is measured, as that of the runtime has.
        let first = rows(IN_FLIGHT[1].min(count))?;
        let milestones = rows(count)?;
        let floor = move || {
            embedded.in_batches(&first)?;
            let meter = Meter::start();
            embedded.in_batches(&milestones)?;
            anyhow::Ok(meter.stop())
        };
        floors.push(spawn_blocking(floor).await??);
        for (spent, in_flight) in ours.iter_mut().zip(IN_FLIGHT) {
            let uri = format!("sqlite:{}", bench.file().display());
            spent.push(chains(uri, in_flight, count).await?);
        }
    }
    let floor = Figures::of(&floors, count);
    let rows = ours.iter().zip(IN_FLIGHT).map(|(spent, in_flight)| {
        let name = format!("throughput, embedded, {in_flight} in flight");
        row(name, &floor, &Figures::of(spent, count), 0.6).note(format!(
            "{count} chains of 2; the floor writes the same rows into the same table: 64 inserts in a transaction, then two of 64 updates, \
             with the write-ahead log and synchronous = FULL; where the disk is slow, larger transactions than those pass it"
        ))
    });
    Ok(rows.collect())
}

/// The medians of some rounds.
struct Figures {
    rate: f64,
    /// Microseconds that this process computes for each.
    computed: f64,
}

impl Figures {
    fn of(rounds: &[Spent], count: usize) -> Self {
        let median_of =
            |figure: &dyn Fn(&Spent) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
        Self {
            rate: median_of(&|spent| spent.rate(count)),
            computed: median_of(&|spent| spent.computed_for(count)),
        }
    }
}

fn row(name: String, floor: &Figures, ours: &Figures, least: f64) -> Row {
    Row::against(name, UNIT, floor.rate, ours.rate)
        .target(Target::AtLeast(least))
        .note(format!(
            "this process computes {:.0} µs a milestone, with the floor {:.0} µs",
            ours.computed, floor.computed
        ))
}

/// What it takes to start and run so many chains, so many at once.
async fn chains(uri: String, in_flight: usize, count: usize) -> Result<Spent> {
    let runtime = Runtime::builder(uri).concurrency(in_flight).build().await?;
    runtime.spawn();
    // The connections are opened by it.
    started_and_run(&runtime, in_flight, in_flight.min(count)).await?;
    let meter = Meter::start();
    started_and_run(&runtime, in_flight, count).await?;
    let spent = meter.stop();
    runtime.shutdown().await;
    Ok(spent)
}

async fn started_and_run(runtime: &Runtime, in_flight: usize, count: usize) -> Result<()> {
    let begun = Arc::new(AtomicUsize::new(0));
    let mut loops = JoinSet::new();
    for _ in 0..in_flight {
        let (runtime, begun) = (runtime.clone(), Arc::clone(&begun));
        loops.spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < count {
                chain_of_two(&runtime, Payload::new()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}
