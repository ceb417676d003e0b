//! `cargo xtask bench`: the benchmark, in release mode, in one command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::process::Group;
use crate::server::{self, Binary, Running};
use crate::tools::cargo;

#[derive(Args)]
pub(crate) struct Options {
    /// A server that runs already, in place of the one that the tests would run against.
    #[arg(long)]
    uri: Option<String>,
    /// The server that is started makes acknowledged writes survive a SIGKILL of it (mongod's do anyway).
    #[arg(long, conflicts_with = "uri")]
    durable: bool,
    /// Fewer rounds and smaller sizes: quicker, and noisier.
    #[arg(long)]
    quick: bool,
    /// The file to write the figures to.
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    json: PathBuf,
    /// Only these parts of it, such as `throughput latency`; a wrong name lists them all.
    #[arg(long, value_name = "PART", num_args = 1..)]
    only: Vec<String>,
}

pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    // The program runs the others of its package.
    let mut compile = cargo();
    compile.args(["build", "--release", "--quiet", "-p", "milestone-bench"]);
    let made = Group::spawn(compile)?.wait().await?;
    if !made.success() {
        return Ok(ExitCode::FAILURE);
    }
    let mut command = cargo();
    command.args(["run", "--release", "--quiet", "-p", "milestone-bench", "--"]);
    let server = if let Some(uri) = &options.uri {
        command.args(["--uri", uri]);
        None
    } else {
        let how = server::Options {
            durable: options.durable,
            ..server::Options::default()
        };
        let binary = Binary::find().await?;
        let server = Running::start(&binary, &how).await?;
        command.args(["--uri", &server.uri]);
        command.args(["--sync", binary.sync(&how)]);
        Some(server)
    };
    if options.quick {
        command.arg("--quick");
    }
    command.arg("--json").arg(&options.json);
    for part in &options.only {
        command.args(["--only", part]);
    }
    let status = Group::spawn(command)?.wait().await?;
    drop(server);
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
