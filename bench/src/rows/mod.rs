//! The rows, in parts that are measured together.

mod backlog;
mod chain;
mod commands;
mod fan_out;
mod hints;
mod idle;
mod latency;
mod memory;
mod throughput;

use std::fmt;

use anyhow::Result;
use clap::ValueEnum;

use crate::{bench::Bench, row::Row};

/// Rows that are measured together, as `--only` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Many short milestones at once
    Throughput,
    /// One short milestone in an idle process
    Latency,
    /// One long milestone
    Chain,
    /// One wide milestone
    FanOut,
    /// A start in one process, seen by another one
    Hints,
    /// Many milestones that wait for workers
    Backlog,
    /// A worker without work beside many finished milestones
    Idle,
    /// What waits and what runs, in memory
    Memory,
    /// The raw driver's two ways to change many documents
    Commands,
}

impl Part {
    pub(crate) const ALL: &[Self] = &[
        Self::Throughput,
        Self::Latency,
        Self::Chain,
        Self::FanOut,
        Self::Hints,
        Self::Backlog,
        Self::Idle,
        Self::Memory,
        Self::Commands,
    ];

    /// Measures its rows.
    pub(crate) async fn run(self, bench: &Bench) -> Result<Vec<Row>> {
        match self {
            Self::Throughput => throughput::run(bench).await,
            Self::Latency => latency::run(bench).await,
            Self::Chain => chain::run(bench).await,
            Self::FanOut => fan_out::run(bench).await,
            Self::Hints => hints::run(bench).await,
            Self::Backlog => backlog::run(bench).await,
            Self::Idle => idle::run(bench).await,
            Self::Memory => memory::run(bench).await,
            Self::Commands => commands::run(bench).await,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
