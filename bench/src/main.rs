//! How fast milestones run, measured against the raw driver that does the same writes on the same server in the same run.
//!
//! `cargo xtask bench` starts a server and runs this; `docs/performance.md` says what each row means.

mod bench;
mod commands;
mod conditions;
mod floor;
mod graphs;
mod report;
mod row;
mod rows;
mod spent;
mod statistics;
mod template;
mod worker;

use std::{path::PathBuf, time::Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, Parser, Subcommand};

use crate::{
    bench::{Bench, Size},
    conditions::Conditions,
    report::Report,
    rows::Part,
};

/// Measures milestones against the raw driver
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Args)]
struct Options {
    /// The MongoDB server; databases named `milestone_bench_..` are made on it and removed
    #[arg(long)]
    uri: Option<String>,
    /// Fewer rounds and smaller sizes: quicker, and noisier
    #[arg(long)]
    quick: bool,
    /// Tiny sizes, whose figures mean nothing: shows that the program works
    #[arg(long, hide = true, conflicts_with = "quick")]
    smoke: bool,
    /// The file to write the figures to
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    json: PathBuf,
    /// Only these parts
    #[arg(long, value_name = "PART", num_args = 1.., value_delimiter = ',')]
    only: Vec<Part>,
    /// What the server does before it acknowledges a write, for the report
    #[arg(long, hide = true, default_value = "as the server is set up")]
    sync: String,
}

#[derive(Subcommand)]
enum Role {
    /// What the program runs itself as, where a row needs workers in processes of their own
    #[command(hide = true)]
    Worker(worker::Options),
}

#[tokio::main]
async fn main() -> Result<()> {
    let Cli { options, role } = Cli::parse();
    match role {
        // Not on the thread of `main`: it would have to be woken by another one at each reply of the server.
        Some(Role::Worker(worker)) => tokio::spawn(worker::run(worker)).await?,
        None => tokio::spawn(measure(options)).await?,
    }
}

async fn measure(options: Options) -> Result<()> {
    let Some(uri) = options.uri else {
        bail!("no server: give `--uri`, or run `cargo xtask bench`, which starts one");
    };
    let size = match (options.smoke, options.quick) {
        (true, _) => Size::Smoke,
        (false, true) => Size::Quick,
        (false, false) => Size::Full,
    };
    let bench = Bench::new(uri, size).await?;
    let mut report = Report::new(Conditions::of(&bench, options.sync).await?);
    let parts = if options.only.is_empty() {
        Part::ALL.to_vec()
    } else {
        options.only
    };
    let mut failed = Vec::new();
    for part in parts {
        eprint!("measuring {part} .. ");
        let began = Instant::now();
        match part.run(&bench).await {
            Ok(rows) => {
                report.add(part, rows);
                eprintln!("{:.0} s", began.elapsed().as_secs_f64());
            }
            // What was measured before is not lost by it.
            Err(error) => {
                eprintln!("failed: {error:#}");
                failed.push(part.to_string());
            }
        }
        bench.clean().await?;
    }
    println!("{report}");
    report.write(&options.json)?;
    println!("written to {}", options.json.display());
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}
