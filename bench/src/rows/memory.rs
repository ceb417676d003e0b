//! What waits and what runs, in memory.

use std::{env, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use serde::Deserialize;
use tokio::process::Command;

use crate::{
    bench::Bench,
    row::{Row, Target},
    statistics::{float, median},
    template::{self, MILESTONES},
    worker::{
        Job, Order, Process,
        ours::{Client, Parcel, STRUGGLE},
    },
};

/// The program that counts what it allocates. It is one of its own, since counting costs time.
const COUNTED: &str = "milestone-bench-counted";

/// How many milestones are started at once.
const AT_ONCE: usize = 500;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = vec![waiting(bench).await?];
    rows.extend(counted(bench).await?);
    Ok(rows)
}

/// Milestones that wait for a retry, beside one worker, against a worker beside none.
async fn waiting(bench: &Bench) -> Result<Row> {
    let (rounds, all, own) = bench.pick((3, 100_000, 10_000), (1, 20_000, 1_000), (1, 100, 20));
    let template = template::waiting(bench).await?;
    let (mut empty, mut full) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        empty.push(resident(bench, &template, 0, 0).await?);
        full.push(resident(bench, &template, all - own, own).await?);
        bench.clean().await?;
    }
    let (empty, full) = (median(&empty), median(&full));
    let row = Row::alone(
        format!("memory: {all} milestones that wait for a retry, over an empty worker"),
        "MiB",
        full - empty,
    );
    Ok(row.target(Target::Below(32.0)).note(format!(
        "resident memory of a worker process, {full:.1} MiB against {empty:.1} MiB; {own} of them the worker has run itself, the others were there"
    )))
}

/// How much memory a worker process has in use in the end, in MiB. So many milestones wait before it works, and so many it runs, which fail
/// and then wait too.
async fn resident(bench: &Bench, template: &Document, there: usize, own: usize) -> Result<f64> {
    const SETTLED: Duration = Duration::from_secs(3);
    let scratch = bench.database();
    let client = Client::new(&scratch.uri).await?;
    let milestones = scratch.database.collection(MILESTONES);
    template::fill(&milestones, template, there).await?;
    let job = Job::Worker {
        uri: scratch.uri.clone(),
        places: 100,
    };
    let mut worker = Process::start(&job).await?;
    worker.ask(Order::Work).await?;
    let mut started = 0;
    while started < own {
        let count = AT_ONCE.min(own - started);
        let starts = (0..count).map(|_| {
            client
                .0
                .start("Parcel", STRUGGLE, Parcel::now())
                .into_future()
        });
        for started in futures_util::future::join_all(starts).await {
            started?;
        }
        started += count;
        // The compatible server is slow where much is due at once.
        while worker.ask(Order::Tell).await?.done < started as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    tokio::time::sleep(SETTLED).await;
    let waiting = doc! { "state": "waiting" };
    let waiting = milestones.count_documents(waiting).await?;
    ensure!(
        waiting == (there + own) as u64,
        "{waiting} milestones wait for a retry, not {}",
        there + own
    );
    let resident = worker.ask(Order::Tell).await?.resident;
    Ok(float(usize::try_from(resident)?) / 1024.0)
}

/// What the program that counts has counted.
#[derive(Deserialize)]
struct Counted {
    /// Bytes that each milestone in flight holds, with its parameters.
    in_flight: f64,
    /// Bytes of its parameters.
    payload: f64,
    /// Allocations for a chain of two actions, from before its start to after its outcome.
    allocations: f64,
    /// Bytes of them.
    bytes: f64,
}

async fn counted(bench: &Bench) -> Result<Vec<Row>> {
    let (rounds, in_flight, chains) = bench.pick((3, 1_000, 5_000), (1, 1_000, 1_000), (1, 20, 20));
    let mut rows = Vec::new();
    for embedded in [false, true] {
        let mut counts = Vec::new();
        for _ in 0..rounds {
            let uri = if embedded {
                format!("sqlite:{}", bench.file().display())
            } else {
                bench.database().uri
            };
            counts.push(count(&uri, in_flight, chains).await?);
        }
        let of =
            |figure: fn(&Counted) -> f64| median(&counts.iter().map(figure).collect::<Vec<_>>());
        let store = if embedded { "embedded" } else { "MongoDB" };
        let (payload, bytes) = (of(|counted| counted.payload), of(|counted| counted.bytes));
        rows.push(
            Row::alone(
                format!("memory: {in_flight} milestones in flight, each over its payload, {store}"),
                "KiB",
                (of(|counted| counted.in_flight) - payload) / 1024.0,
            )
            .target(Target::Below(8.0))
            .note(format!(
                "bytes that are allocated in the process and not given back, with the body of the action; the parameters have {payload} bytes"
            )),
        );
        rows.push(
            Row::alone(
                format!("allocations for a chain of 2 actions, {store}"),
                "allocations",
                of(|counted| counted.allocations),
            )
            .note(format!(
                "{:.0} an action, {:.1} KiB a chain; of the whole process, with the start, the outcome and the driver; {chains} chains, 64 in flight",
                of(|counted| counted.allocations) / 2.0,
                bytes / 1024.0,
            )),
        );
    }
    Ok(rows)
}

async fn count(uri: &str, in_flight: usize, chains: usize) -> Result<Counted> {
    let program = env::current_exe()?.with_file_name(COUNTED);
    ensure!(
        program.exists(),
        "{} is not built: `cargo build -p milestone-bench`, with the profile of this program",
        program.display()
    );
    let output = Command::new(&program)
        .args([uri, &in_flight.to_string(), &chains.to_string()])
        .stdin(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{} cannot be run", program.display()))?;
    ensure!(
        output.status.success(),
        "{COUNTED} has failed, as it says above"
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}
