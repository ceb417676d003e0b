//! What the examples share: a bank and a card service that keep their books beside the milestones, and tables for the terminal.
//!
//! The code of the README and of the guide is compiled and tested here as well.

pub mod bank;
pub mod books;
pub mod card;
pub mod chaos;
pub mod crew;
mod file;
pub mod kill;
pub mod mongo;
pub mod rates;
pub mod table;

use std::time::Duration;

use serde::de::DeserializeOwned;

use milestone_runtime::{
    Error, Handle, Milestone, OutcomeError, Runtime, Status, Yields,
    store::{Filter, Page},
};

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/choosing.md")]
#[doc = include_str!("../../docs/guide/failures.md")]
#[doc = include_str!("../../docs/guide/field-sync.md")]
#[doc = include_str!("../../docs/guide/once.md")]
#[doc = include_str!("../../docs/guide/operating.md")]
#[doc = include_str!("../../docs/guide/sequences.md")]
#[doc = include_str!("../../docs/guide/starting-in-a-transaction.md")]
#[doc = include_str!("../../docs/guide/transactions.md")]
#[doc = include_str!("../../docs/guide/values.md")]
struct Guide;

/// The milestones of a type that are not over, up to 10,000 of them.
///
/// # Errors
/// If the database does not answer.
pub async fn unfinished<M, O>(runtime: &Runtime) -> Result<Vec<Handle<O>>, Error>
where
    M: Milestone + Yields<O>,
    O: DeserializeOwned,
{
    let filter = Filter::unfinished().kind(M::TYPE);
    let page = Page {
        limit: 10_000,
        ..Page::default()
    };
    let found = runtime.list(filter, page).await?.records;
    let handles = found
        .into_iter()
        .map(|record| M::handle(runtime, record.id));
    Ok(handles.collect())
}

/// Waits until a milestone is in doubt, and tells whether it is; it may be over instead.
///
/// # Errors
/// If it is gone, or the database does not answer.
pub async fn is_in_doubt<O>(milestone: &Handle<O>) -> Result<bool, OutcomeError> {
    loop {
        let state = milestone.status().await?;
        if state == Status::InDoubt || state.is_terminal() {
            return Ok(state == Status::InDoubt);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
