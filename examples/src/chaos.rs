//! Transfers among accounts while worker processes are killed: what `two_phase_commit` and `transactional` have in common.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use clap::Parser;
use milestone_runtime::{
    Filter, Page, Runtime, RuntimeBuilder, Start, core::record::Order, stop_signal,
};

use crate::{
    books::{Books, NOBODY},
    crew::{Crew, end_with_the_crew},
    mongo,
};

/// Moves money among accounts while workers are killed, and looks whether it is all there.
#[derive(Clone, Parser)]
pub struct Chaos {
    /// Where accounts and milestones are: `mongodb://HOST/DATABASE`
    #[arg(long, default_value = mongo::DEFAULT_URI)]
    pub uri: String,
    /// Where the workers find that, if their way to it is another one
    #[arg(long)]
    worker_uri: Option<String>,
    /// How many transfers; each tenth goes to an account that does not exist
    #[arg(long, default_value_t = 200)]
    transfers: usize,
    /// Among how many accounts
    #[arg(long, default_value_t = 10)]
    accounts: usize,
    /// How many worker processes
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// How often one of them is killed, in milliseconds
    #[arg(long, default_value_t = 500)]
    kill_every: u64,
    /// Decides who pays whom how much
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Works until it is killed; the example starts itself with that
    #[arg(long)]
    worker: bool,
}

impl Chaos {
    /// A runtime as it is built for this: a worker that has just started leaves what others held alone for one lease, and here none lives
    /// much longer than that.
    pub fn builder(&self) -> RuntimeBuilder {
        let builder = Runtime::builder(&self.uri)
            .lease(Duration::from_millis(600))
            .poll(Duration::from_millis(200))
            .concurrency(2)
            // All servers are on this machine, so their clocks agree.
            .clock_skew(Duration::from_secs(2));
        if self.worker {
            builder
        } else {
            builder.client()
        }
    }
}

/// A milestone that many workers have died with is parked, since it may be what kills them. An operator who knows better resumes it.
async fn resume_parked(runtime: &Runtime) {
    let parked = Filter::unfinished().on_hold();
    let Ok(found) = runtime.list(parked, Page::default()).await else {
        // The next look tells.
        return;
    };
    for milestone in found.records {
        // It may have been resumed already.
        let _ = runtime.send(milestone.id, Order::Resume).await;
    }
}

/// Works, in a worker process; else starts the transfers and the workers, and tells what has become of both.
///
/// # Errors
/// If the database does not answer for long, or the books are not exact.
pub async fn run<O: Send + 'static>(
    chaos: &Chaos,
    runtime: &Runtime,
    books: &Books,
    transfer: impl Fn(String, String, i64) -> Start<O>,
) -> anyhow::Result<()> {
    if chaos.worker {
        end_with_the_crew();
        runtime.run_until(stop_signal).await;
        return Ok(());
    }
    println!("{}", runtime.server());
    let accounts = books.open(chaos.accounts).await?;
    println!(
        "{} transfers among {} accounts, {} workers, seed {}",
        chaos.transfers, chaos.accounts, chaos.workers, chaos.seed
    );
    let mut random = fastrand::Rng::with_seed(chaos.seed);
    let mut started = Vec::new();
    for n in 0..chaos.transfers {
        let from = random.usize(..accounts.len());
        let to = (from + random.usize(1..accounts.len())) % accounts.len();
        let to = if n % 10 == 9 { NOBODY } else { &accounts[to] };
        let amount = random.i64(1..20);
        started.push(transfer(accounts[from].clone(), to.to_owned(), amount).await?);
    }

    let began = Instant::now();
    let kill_every = Duration::from_millis(chaos.kill_every);
    let worker_uri = chaos.worker_uri.as_ref().unwrap_or(&chaos.uri);
    let arguments = ["--worker", "--uri", worker_uri];
    let mut crew = Crew::start(chaos.workers, kill_every, chaos.seed, &arguments)?;
    let mut look = Instant::now();
    let mut ended: BTreeMap<&str, usize> = BTreeMap::new();
    for milestone in &started {
        let mut outcome = std::pin::pin!(milestone.ended());
        let record = loop {
            tokio::select! {
                record = &mut outcome => break record?,
                () = tokio::time::sleep(Duration::from_millis(20)) => crew.kill_one_now_and_then()?,
                () = tokio::time::sleep_until(look.into()) => {
                    resume_parked(runtime).await;
                    look = Instant::now() + Duration::from_secs(2);
                }
            }
        };
        *ended.entry(record.state.as_str()).or_default() += 1;
    }
    println!(
        "all are over after {:.0?}; workers killed: {}",
        began.elapsed(),
        crew.kills
    );
    let ended: Vec<String> = ended
        .iter()
        .map(|(state, n)| format!("{state}: {n}"))
        .collect();
    println!("{}", ended.join(", "));

    // Markers go some seconds after a milestone is over; those of the dead are found by who lives.
    let patience = Instant::now() + Duration::from_mins(1);
    let mut audit = books.audit().await?;
    while audit.marked > 0 && Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(200)).await;
        audit = books.audit().await?;
    }
    drop(crew);
    println!("{}", audit.table());
    anyhow::ensure!(audit.is_exact(), "money has come or gone");
    println!(
        "each account holds what the ledger says; markers left: {}",
        audit.marked
    );
    anyhow::ensure!(audit.marked == 0, "markers were left");
    Ok(())
}
