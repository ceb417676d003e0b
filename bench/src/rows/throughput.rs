//! Many short milestones at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use milestone_runtime::Runtime;
use tokio::task::{JoinSet, spawn_blocking};

use crate::{
    bench::Bench,
    floor::{Embedded, Raw, Rows, Template},
    graphs::{Payload, chain_of_two},
    row::{Row, Target},
    statistics::{median, rate},
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
        for (rates, commands) in floors.iter_mut().zip(COMMANDS) {
            let raw = Raw::open(bench).await?;
            rates.push(rate(
                count,
                raw.in_batches(template, count, commands).await?,
            ));
        }
        for (rates, in_flight) in ours.iter_mut().zip(IN_FLIGHT) {
            let took = chains(bench.database().uri, in_flight, count).await?;
            rates.push(rate(count, took));
        }
        bench.clean().await?;
    }
    let floors = floors.map(|rates| median(&rates));
    let (floor, commands) = floors
        .into_iter()
        .zip(COMMANDS)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .unwrap_or_default();
    let each: Vec<String> = floors
        .iter()
        .zip(COMMANDS)
        .map(|(rate, commands)| format!("{rate:.0} with {commands}"))
        .collect();
    let rows = ours.iter().zip(IN_FLIGHT).map(|(rates, in_flight)| {
        Row::against(
            format!("throughput, {in_flight} in flight"),
            UNIT,
            floor,
            median(rates),
        )
        .target(Target::AtLeast(0.75))
        .note(format!(
            "{count} chains of 2, started and run in one process; the floor inserts 64 documents, then updates them twice, by the very \
             statements of the runtime, with {commands} commands in flight ({})",
            each.join(", ")
        ))
    });
    Ok(rows.collect())
}

async fn on_sqlite(bench: &Bench, template: &Template) -> Result<Vec<Row>> {
    let count = bench.pick(5_000, 2_000, 20);
    let states = Raw::open(bench).await?.states(&template.writes()?).await?;
    let mut floors = Vec::new();
    let mut ours = IN_FLIGHT.map(|_| Vec::new());
    for _ in 0..bench.pick(5, 3, 1) {
        let mut embedded = Embedded::open(&bench.file()).await?;
        let milestones: Vec<_> = (0..count)
            .map(|_| Rows::like(&states))
            .collect::<Result<_>>()?;
        let took = spawn_blocking(move || embedded.in_batches(&milestones)).await??;
        floors.push(rate(count, took));
        for (rates, in_flight) in ours.iter_mut().zip(IN_FLIGHT) {
            let uri = format!("sqlite:{}", bench.file().display());
            rates.push(rate(count, chains(uri, in_flight, count).await?));
        }
    }
    let rows = ours.iter().zip(IN_FLIGHT).map(|(rates, in_flight)| {
        Row::against(
            format!("throughput, embedded, {in_flight} in flight"),
            UNIT,
            median(&floors),
            median(rates),
        )
        .target(Target::AtLeast(0.6))
        .note(format!(
            "{count} chains of 2; the floor writes the same rows into the same table: 64 inserts in a transaction, then two of 64 updates, \
             with the write-ahead log and synchronous = FULL"
        ))
    });
    Ok(rows.collect())
}

/// How long it takes to start and run so many chains, so many at once.
async fn chains(uri: String, in_flight: usize, count: usize) -> Result<Duration> {
    let runtime = Runtime::builder(uri).concurrency(in_flight).build().await?;
    runtime.spawn();
    // The connections are opened by it.
    started_and_run(&runtime, in_flight, in_flight.min(count)).await?;
    let began = Instant::now();
    started_and_run(&runtime, in_flight, count).await?;
    let took = began.elapsed();
    runtime.shutdown().await;
    Ok(took)
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
