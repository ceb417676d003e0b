//! A worker for tests that break things: `torture_worker URI JOURNAL NAME LEASE POLL [clock | hang ID]`, with the times in milliseconds, 0 for
//! the default. It works until it is killed, or shuts down at SIGTERM.
//!
//! With `hang ID` it has one place, starts a milestone of that id and stays in its first action. With `clock` it says on its output what
//! time it believes it is, before it works.

use std::{
    env,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use milestone_examples::bank::Bank;
use milestone_runtime::Runtime;
use milestone_tests::{
    journal::{self, Journal},
    load::{self, Kind, Load, with_actions},
};

/// Longer than a frozen worker is frozen, less its lease: what it was at has ended when others may say what became of it.
const SETTLE: Duration = Duration::from_secs(15);

/// How long a worker tries to begin.
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let mut next = |what| {
        arguments
            .next()
            .with_context(|| format!("{what} is missing"))
    };
    let (uri, journal, name) = (next("the URI")?, next("the journal")?, next("the name")?);
    let (lease, poll): (u64, u64) = (next("the lease")?.parse()?, next("the poll")?.parse()?);
    let role = arguments.next();
    if role.as_deref() == Some("clock") {
        println!("{}", journal::now());
    }
    let load = Arc::new(Load {
        journal: Journal::open(Path::new(&journal))?,
        bank: Some(patiently(|| Bank::open(&uri)).await?),
        runtime: OnceLock::new(),
    });
    let hangs = role.as_deref() == Some("hang");
    let builder = || {
        let mut builder = Runtime::builder(&uri)
            .actions(std::iter::empty::<String>())
            .worker_name(&name)
            .settle(SETTLE);
        if lease > 0 {
            builder = builder.lease(Duration::from_millis(lease));
        }
        if poll > 0 {
            builder = builder.poll(Duration::from_millis(poll));
        }
        if hangs {
            builder = builder.concurrency(1);
        }
        with_actions(builder, &load)
    };
    let runtime = patiently(|| builder().build()).await?;
    load.runtime
        .set(runtime.clone())
        .ok()
        .context("it is set once")?;
    let robot = runtime.spawn();
    if hangs {
        let id = arguments.next().context("the id is missing")?;
        // Whoever does it again does it quickly.
        let endless = load::slow_at_first(Duration::from_hours(1), Duration::from_millis(10));
        let kind = Kind::Retry;
        runtime
            .start(kind.name(), kind.graph(), endless)
            .id(id)
            .await?;
    }
    terminated().await?;
    robot.shutdown().await;
    Ok(())
}

/// Does it again for a while, as whoever looks after workers would: the server may be away just when one starts.
async fn patiently<T, E, F>(mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let began = Instant::now();
    loop {
        match attempt().await {
            Err(_) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            result => return result,
        }
    }
}

async fn terminated() -> anyhow::Result<()> {
    let kind = tokio::signal::unix::SignalKind::terminate();
    tokio::signal::unix::signal(kind)?.recv().await;
    Ok(())
}
