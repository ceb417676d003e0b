//! Two processes on one database: a worker, which only works, and a client, which only starts milestones and waits for their outcomes.
//!
//! In one terminal `cargo run --example worker_and_client -- worker`, which works until Ctrl-C. In another one, or in several:
//!
//! ```text
//! $ cargo run --example worker_and_client -- client --jobs 3
//! 3 jobs are stored after 2ms
//! ┌────┬────────┬───────────┬─────────────────┐
//! │ of ┆ digits ┆ their sum ┆ worker          │
//! ╞════╪════════╪═══════════╪═════════════════╡
//! │  1 ┆      1 ┆         1 ┆ worker-199816f9 │
//! │  8 ┆      1 ┆         8 ┆ worker-199816f9 │
//! │ 27 ┆      2 ┆         9 ┆ worker-199816f9 │
//! └────┴────────┴───────────┴─────────────────┘
//! all done after 85ms
//! ```
//!
//! Neither waits for the other to be there: what a client has started is stored, and a worker that comes later does it.

use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use milestone_examples::table::{number, table};
use milestone_runtime::prelude::*;

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(count -> sum)]
struct Digits {
    of: u64,
}

/// What the worker gives to its actions. The client has none, and owes none.
struct Pace(Duration);

#[action(idempotent)]
async fn count(Params(digits): Params<Digits>, pace: State<Pace>) -> Result<usize, ActionError> {
    tokio::time::sleep(pace.0.0).await;
    Ok(digits.of.to_string().len())
}

#[derive(Serialize, Deserialize)]
struct Answer {
    digits: usize,
    sum: u64,
    worker: String,
}

#[action(idempotent)]
async fn sum(
    Params(digits): Params<Digits>,
    Output(count): Output<count>,
    cx: Context,
) -> Result<Answer, ActionError> {
    let numbers = digits.of.to_string();
    let sum = numbers.bytes().map(|digit| u64::from(digit - b'0')).sum();
    Ok(Answer {
        digits: count,
        sum,
        worker: cx.worker().to_owned(),
    })
}

/// A worker and a client, each a process.
#[derive(Parser)]
struct Args {
    /// Where the milestones are: `sqlite:FILE` or `mongodb://HOST/DATABASE`
    #[arg(long, global = true, default_value = "sqlite:work.db")]
    uri: String,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Works until Ctrl-C
    Worker {
        /// What others see as its name
        #[arg(long, default_value = "worker")]
        name: String,
    },
    /// Starts jobs and waits for them
    Client {
        /// How many
        #[arg(long, default_value_t = 3)]
        jobs: u64,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { uri, role } = Args::parse();
    match role {
        Role::Worker { name } => worker(uri, name).await,
        Role::Client { jobs } => client(uri, jobs).await,
    }
}

async fn worker(uri: String, name: String) -> anyhow::Result<()> {
    let runtime = Runtime::builder(uri)
        .worker_name(name)
        .state(Pace(Duration::from_millis(20)))
        .build()
        .await?;
    let robot = runtime.spawn();
    println!(
        "{} works on {}; Ctrl-C ends it",
        runtime.worker(),
        runtime.server()
    );
    tokio::signal::ctrl_c().await?;
    // What runs ends, or is handed back.
    robot.shutdown().await;
    println!("{} has ended", runtime.worker());
    Ok(())
}

async fn client(uri: String, jobs: u64) -> anyhow::Result<()> {
    let runtime = Runtime::builder(uri).client().build().await?;
    let began = Instant::now();
    let started = runtime
        .start_many((1..=jobs).map(|job| Digits { of: job.pow(3) }))
        .await;
    println!("{jobs} jobs are stored after {:.0?}", began.elapsed());

    let mut sums = table(["of", "digits", "their sum", "worker"]);
    for (job, started) in (1..).zip(started) {
        let Answer {
            digits,
            sum,
            worker,
        } = started?.outcome().await?;
        let of = u64::pow(job, 3);
        sums.add_row([number(of), number(digits), number(sum), worker.into()]);
    }
    println!("{sums}\nall done after {:.0?}", began.elapsed());
    Ok(())
}
