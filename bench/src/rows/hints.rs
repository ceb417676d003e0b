//! A start in one process, seen by another one.

use anyhow::Result;

use crate::{bench::Bench, row::Row};

#[expect(clippy::unused_async, reason = "it measures nothing yet")]
pub(super) async fn run(_bench: &Bench) -> Result<Vec<Row>> {
    Ok(Vec::new())
}
