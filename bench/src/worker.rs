//! A worker in a process of its own.

use anyhow::Result;
use clap::Args;
use milestone_runtime::Runtime;

#[derive(Args)]
pub(crate) struct Options {
    /// The database of the milestones
    #[arg(long)]
    store: String,
}

/// Works until it is told to stop.
pub(crate) async fn run(options: Options) -> Result<()> {
    let runtime = Runtime::builder(options.store).build().await?;
    runtime.run_until(milestone_runtime::stop_signal).await;
    Ok(())
}
