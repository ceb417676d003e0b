//! `cargo xtask`: runs the tests against a real server, breaks things for longer than they may take, and starts a server to try things by
//! hand.

mod bench;
mod example;
mod process;
mod server;
mod tests_runner;
mod tools;
mod torture;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::server::{Binary, Options, Running};

/// Tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs the workspace's tests against a MongoDB server.
    ///
    /// The server is the one at `MILESTONE_TEST_URI` if that is set. Else one is started for the tests and stopped
    /// after them: the binary that `MILESTONE_TEST_SERVER` names, a `mongod` on the PATH, or a
    /// compatible server, which is built once (about 4 minutes) into the user's cache folder.
    Test {
        /// Arguments of `cargo test` in place of `--workspace`, for example `-p milestone-tests --test crash`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Starts the server that the tests would run against, prints its URI and waits for Ctrl-C.
    Server {
        /// The port to listen on; by default a free one.
        #[arg(long)]
        port: Option<u16>,
        /// The folder to keep the data in; by default a temporary one, removed at the end.
        #[arg(long)]
        storage: Option<PathBuf>,
        /// Makes acknowledged writes survive a SIGKILL of the compatible server (mongod's do anyway).
        #[arg(long)]
        durable: bool,
        /// Only makes sure that there is a server binary, builds it if need be, and prints its path.
        #[arg(long, conflicts_with_all = ["port", "storage", "durable"])]
        build_only: bool,
    },
    /// Runs one of the examples against the server that the tests would run against, in an empty database.
    Example {
        /// Its name, such as `two_phase_commit`.
        name: String,
        /// Arguments of the example.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measures milestones against the raw driver that does the same writes, in release mode; prints a table and writes JSON.
    ///
    /// The server is started for it, in an empty database, unless `--uri` names one.
    Bench(bench::Options),
    /// Breaks things for some minutes, and ends with figures: worker processes are killed and frozen, servers killed and restarted, connections
    /// cut; then come long outages, a simulation of more seeds, and a larger model of the protocol.
    ///
    /// The exit code is 1 if anything was lost, completed twice, or begun twice that may not be, and the milestones are named.
    Torture(torture::Options),
}

/// What a shell reports for a program that Ctrl-C ended; a server is meant to be ended so.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let when_interrupted = match cli.task {
        Task::Server {
            build_only: false, ..
        } => ExitCode::SUCCESS,
        _ => ExitCode::from(INTERRUPTED),
    };
    // A signal drops the task's future: the servers and programs that it holds stop themselves on drop.
    let result = tokio::select! {
        result = run(cli.task) => result,
        result = process::interrupted() => result.map(|()| when_interrupted),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Test { args } => tests_runner::run(&args).await,
        Task::Bench(options) => bench::run(options).await,
        Task::Torture(options) => torture::run(options).await,
        Task::Example { name, args } => example::run(&name, &args).await,
        Task::Server {
            build_only: true, ..
        } => {
            println!("{}", Binary::find().await?.path.display());
            Ok(ExitCode::SUCCESS)
        }
        Task::Server {
            port,
            storage,
            durable,
            ..
        } => {
            let options = Options {
                port,
                storage,
                durable,
            };
            serve(&options).await
        }
    }
}

async fn serve(options: &Options) -> Result<ExitCode> {
    let mut server = Running::start(&Binary::find().await?, options).await?;
    eprintln!("{}\nCtrl-C stops it", server.description());
    println!("{}", server.uri);
    std::io::stdout().flush()?;
    // Ctrl-C ends this by dropping the future.
    Err(server.ended_by_itself().await)
}
