//! What the examples share: a bank that keeps its accounts beside the milestones, and tables for the terminal.
//!
//! The code of the README is compiled and tested here as well.

pub mod bank;
pub mod kill;
pub mod table;

use serde::de::DeserializeOwned;

use milestone_runtime::{
    Error, Handle, Milestone, Runtime, Yields,
    store::{Filter, Page},
};

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

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
