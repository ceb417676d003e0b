//! Where an `allow` in generated code would be an error.
#![forbid(non_camel_case_types, clippy::pedantic, unreachable_pub, missing_docs)]

use milestone_runtime::prelude::*;

/// Takes nothing, gives nothing.
#[action(undo = tock)]
pub async fn tick() {}

#[action(idempotent)]
async fn tock(_: Option<Output<tick>>) {}
