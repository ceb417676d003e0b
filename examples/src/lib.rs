//! What the examples share: a bank that keeps its accounts beside the milestones, and tables for the terminal.
//!
//! The code of the README is compiled and tested here as well.

pub mod bank;
pub mod kill;
pub mod table;

use milestone_runtime::{
    Error, Handle, Milestone, Runtime,
    store::{Filter, Page},
};

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The milestones of a type that are not over, up to 10,000 of them.
///
/// # Errors
/// If the database does not answer.
pub async fn unfinished<M: Milestone>(runtime: &Runtime) -> Result<Vec<Handle<M::Output>>, Error> {
    let filter = Filter::unfinished().kind(M::TYPE);
    let page = Page {
        limit: 10_000,
        ..Page::default()
    };
    let found = runtime.list(filter, page).await?.records;
    let handles = found
        .into_iter()
        .map(|record| runtime.handle::<M>(record.id));
    Ok(handles.collect())
}
