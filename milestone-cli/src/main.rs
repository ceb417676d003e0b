//! `milestone`: looks at milestones, and commands them.
//!
//! What decides or draws is pure and has its tests beside it: [`explain`], [`graph`], [`time`], [`json`], [`ids`]. The [`commands`] read and
//! write.

#[macro_use]
mod text;

mod args;
mod checkup;
mod commands;
mod context;
mod exit;
mod explain;
#[cfg(test)]
mod fixtures;
mod graph;
mod ids;
mod json;
mod output;
mod page;
mod shell;
mod style;
mod time;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::{args::Cli, context::Context, exit::Exit};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.color.apply();
    let context = Context::new(&cli, &matches);
    let result = commands::run(cli.command, context).await;
    match result {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error).into(),
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
