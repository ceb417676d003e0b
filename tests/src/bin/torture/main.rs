//! Breaks everything for a while and looks at what is left: `torture STORE SECONDS SEED [URI]`, where the store is `mongodb` or `sqlite`.
//! `cargo xtask torture` calls it.
//!
//! Worker processes carry out milestones of several kinds. They are killed and frozen for longer than their leases; their connections are
//! cut; the server is killed and started again. The seed decides what is broken and in which order, but not what that hits. In the end
//! everything must have ended as its kind does, and agree with what the bodies of the actions wrote down. The exit code is 1 otherwise.

mod breaker;
mod operator;
mod recovery;
mod stage;
mod starter;
mod verdict;

use std::{
    env,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::stage::{Stage, Where};

/// How long the robot may take to end what is left, when nothing is broken any more.
const PATIENCE: Duration = Duration::from_mins(3);

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = env::args().skip(1);
    let mut next = |what| {
        arguments
            .next()
            .with_context(|| format!("{what} is missing"))
    };
    let place = match &*next("the store")? {
        "mongodb" => Where::OwnServer,
        "sqlite" => Where::Sqlite,
        other => bail!("`{other}` is no store: take mongodb or sqlite"),
    };
    let time = Duration::from_secs(next("how many seconds")?.parse()?);
    let seed: u64 = next("the seed")?.parse()?;
    let place = match arguments.next() {
        Some(uri) => Where::Server(uri),
        None => place,
    };
    println!("store      {}\nseed       {seed}", place.name());

    let mut good = true;
    let measured = recovery::measure(&place, seed).await;
    println!("recovery   {measured}");
    good &= measured.is_good();

    let stage = Arc::new(Stage::new(place).await);
    let over = Arc::new(AtomicBool::new(false));
    let starting = tokio::spawn(starter::run(Arc::clone(&stage), seed, Arc::clone(&over)));
    let operating = tokio::spawn(operator::run(Arc::clone(&stage), Arc::clone(&over)));
    let (broken, workers) = breaker::run(&stage, seed, time, &over).await;
    let started = starting.await?;
    let unfinished = tokio::time::timeout(PATIENCE, starter::until_ended(&stage)).await;
    operating.abort();
    drop(workers);
    let verdict = verdict::of(&stage, &started).await;
    println!("time       {} s of load", time.as_secs());
    println!("{broken}");
    println!("{verdict}");
    if unfinished.is_err() {
        println!("error      not everything has ended within {PATIENCE:?}");
        good = false;
    }
    good &= verdict.is_good();
    if !good {
        println!("kept       {}", stage.keep().display());
    }
    println!("{}", if good { "good" } else { "BROKEN" });
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
