//! `cargo xtask torture`: what breaks things for longer than a test run may take.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::process::Group;
use crate::server::{Binary, redacted};
use crate::tools::{cargo, readable};

/// The variable by which tests find a server that they may kill.
const BINARY: &str = "MILESTONE_TEST_SERVER_BIN";
/// How many simulated runs there are for each minute.
const SEEDS_A_MINUTE: u64 = 1_000;
/// How long the server is away, in seconds.
const OUTAGES: [u64; 2] = [5, 60];

#[derive(Args)]
pub(crate) struct Options {
    /// How long workers, connections and servers are broken.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Decides what is broken and in which order; by default another one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// On which store; on both for half of the time each.
    #[arg(long, value_enum, default_value_t = Stores::Both)]
    store: Stores,
    /// A MongoDB server to work on. It is not restarted; without this, one is started to be killed.
    #[arg(long)]
    uri: Option<String>,
    /// Only that; no simulation, no model of the protocol, no long outages.
    #[arg(long)]
    only_load: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stores {
    Both,
    Mongodb,
    Sqlite,
}

/// One program to run, and how it went.
struct Step {
    name: String,
    command: Command,
}

pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(new_seed);
    println!(
        "seed {seed}; the same again: cargo xtask torture --minutes {} --seed {seed}\n",
        options.minutes
    );
    let binary = Binary::find().await?;
    let mut build = cargo();
    build.args(["build", "-p", "milestone-tests", "--bins"]);
    if !succeeds(build).await? {
        return Ok(ExitCode::FAILURE);
    }
    let mut steps = loads(&options, seed);
    if !options.only_load {
        steps.extend(long_tests(&options, seed));
    }
    let mut results = Vec::new();
    for Step { name, mut command } in steps {
        println!("== {name}");
        command.env(BINARY, &binary.path);
        let started = Instant::now();
        let good = succeeds(command).await?;
        results.push((name, good, started.elapsed()));
        println!();
    }
    for (name, good, time) in &results {
        let verdict = if *good { "good" } else { "BROKEN" };
        println!("{verdict:<7} {name}, in {}", readable(*time));
    }
    println!("seed {seed}");
    let good = results.iter().all(|(_, good, _)| *good);
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Worker processes under load, which are killed and frozen.
fn loads(options: &Options, seed: u64) -> Vec<Step> {
    let stores: &[&str] = match options.store {
        Stores::Both => &["mongodb", "sqlite"],
        Stores::Mongodb => &["mongodb"],
        Stores::Sqlite => &["sqlite"],
    };
    let seconds = options.minutes * 60 / stores.len() as u64;
    let load = |store: &&str| {
        let mut command = cargo();
        command.args([
            "run",
            "--quiet",
            "-p",
            "milestone-tests",
            "--bin",
            "torture",
            "--",
        ]);
        command.args([*store, &seconds.to_string(), &seed.to_string()]);
        let mut name = format!("load on {store}, broken for {seconds} s");
        if let Some(uri) = options.uri.as_ref().filter(|_| *store == "mongodb") {
            command.arg(uri);
            name = format!("{name}, at {}", redacted(uri));
        }
        Step { name, command }
    };
    stores.iter().map(load).collect()
}

/// Tests that look at more here than they do in a test run.
fn long_tests(options: &Options, seed: u64) -> Vec<Step> {
    let test = |name: String, arguments: &[&str], variable: (&str, String)| {
        let mut command = cargo();
        command.args(["test", "--quiet"]).args(arguments);
        command.env(variable.0, variable.1);
        Step { name, command }
    };
    let mut steps = Vec::new();
    if options.store != Stores::Sqlite && options.uri.is_none() {
        let outages = [
            "-p",
            "milestone-tests",
            "--test",
            "server_breaks",
            "f27",
            "--",
            "--test-threads",
            "5",
        ];
        steps.extend(OUTAGES.map(|seconds| {
            let name = format!("the server away for {seconds} s at a start, a claim, a commit, a renewal and a shutdown");
            test(name, &outages, ("MILESTONE_OUTAGE", seconds.to_string()))
        }));
    }
    steps.extend(full_sizes(options));
    let first = seed % 1_000_000_000;
    let seeds = format!("{first}..{}", first + SEEDS_A_MINUTE * options.minutes);
    steps.push(test(
        format!("simulation of the seeds {seeds}"),
        &[
            "-p",
            "milestone-tests",
            "--test",
            "simulation",
            "all_seeds",
            "--",
            "--nocapture",
        ],
        ("MILESTONE_SEEDS", seeds),
    ));
    if PathBuf::from("milestone-core/tests/protocol").is_dir() {
        steps.push(test(
            "the model of the protocol, with larger bounds".to_owned(),
            // In a debug build it would take a quarter of an hour.
            &["--release", "-p", "milestone-core", "--test", "protocol"],
            ("MILESTONE_PROTOCOL", "long".to_owned()),
        ));
    }
    steps
}

/// Tests of growth and of races in full: a test run takes smaller sizes and fewer rounds. They start a server of their own.
fn full_sizes(options: &Options) -> Vec<Step> {
    let tests = [
        ("large graphs and backlogs, in full", "field", "growth::"),
        ("1,000 milestones in a second, 50 times", "field", "f04"),
        (
            "200 transfers, by once and in transactions, 20 seeds each",
            "examples",
            "transfers::",
        ),
    ];
    let step = |(name, target, filter): (&str, &str, &str)| {
        let mut command = cargo();
        command.args([
            "xtask",
            "test",
            "-p",
            "milestone-tests",
            "--test",
            target,
            filter,
            "--",
            "--nocapture",
        ]);
        command.env("MILESTONE_LARGE", "1");
        command.env("MILESTONE_RUNS", "20");
        command.env("MILESTONE_BACKLOG_SQLITE", "50000");
        command.env("MILESTONE_BACKLOG_MONGODB", "5000");
        command.env("MILESTONE_ROUNDS", "50");
        if let Some(uri) = &options.uri {
            command.env("MILESTONE_TEST_URI", uri);
        }
        Step {
            name: name.to_owned(),
            command,
        }
    };
    tests.into_iter().map(step).collect()
}

async fn succeeds(command: Command) -> Result<bool> {
    Ok(Group::spawn(command)?.wait().await?.success())
}

fn new_seed() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
    since.as_secs()
}
