//! Durable work on MongoDB, or on a SQLite file: async functions marked as actions, wired into graphs, and run to completion whatever
//! happens.
//!
//! - An **action** is an async function under [`#[action]`](macro@action): what it takes are extractors ([`action`](mod@action)), what it may do
//!   after a crash is said by its options.
//! - A **graph** of actions is written with [`#[derive(Milestone)]`](derive@Milestone) or [`milestone!`], and checked by the compiler;
//!   what is known only at run time is built with [`dynamic::Action`] and [`Method`].
//! - A **milestone** is one run of a graph, and one document of the database ([`MilestoneRecord`]). [`Milestone::start`] stores it and gives
//!   a [`Handle`].
//! - A [`Runtime`] is one worker, or a client: it starts milestones, runs them, and reads them.
//!
//! ```standalone_crate
//! use milestone_runtime::prelude::*;
//!
//! #[derive(Serialize, Deserialize, Milestone)]
//! #[milestone(greet -> count)]
//! struct Greeting { name: String }
//!
//! #[action(idempotent)]
//! async fn greet(Params(greeting): Params<Greeting>) -> Result<String, ActionError> {
//!     Ok(format!("hello {}", greeting.name))
//! }
//!
//! #[action(idempotent)]
//! async fn count(Output(text): Output<greet>) -> Result<usize, ActionError> {
//!     Ok(text.len())
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder("memory:").build().await?;
//! runtime.spawn();
//! let letters = Greeting { name: "Ada".to_owned() }.start(&runtime).await?.outcome().await?;
//! assert_eq!(letters, 9);
//! # Ok(())
//! # }
//! ```
//!
//! An action runs on the tokio runtime in which the [`Runtime`] was built. Calls to the database run on threads of their own, so an action
//! that blocks its thread loses no lease.

pub mod action;
mod builder;
mod command;
mod config;
mod definition;
pub mod dynamic;
mod engine;
mod error;
mod executor;
mod handle;
mod ids;
mod metrics;
pub mod mongo;
mod registry;
mod runtime;
mod signal;
mod start;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod uri;

pub use builder::RuntimeBuilder;
pub use command::{CommandError, SentCommand};
pub use definition::{Definition, Graph, Milestone, Node, TypeRegistration, Yields};
pub use engine::pass::{RunItem, RunReport};
pub use error::Error;
pub use handle::{Handle, OutcomeError};
pub use metrics::Metrics;
pub use milestone_core as core;
pub use milestone_core::{
    limits::Limits,
    record::{Attempt, AttemptError, MilestoneId, MilestoneRecord, Status},
    verdict::Verdict,
};
pub use milestone_macros::{Milestone, action};
pub use registry::Method;
pub use runtime::{Robot, Runtime};
pub use signal::stop_signal;
pub use start::{Conflict, Start, StartError, StartInError};
pub use store::{Filter, Listed, Page, Tally};

/// What an application imports: `use milestone_runtime::prelude::*;`.
pub mod prelude {
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        Method, Milestone, Runtime, Verdict, action,
        action::{ActionError, Context, OrFail, Output, Params, Retry, State},
        milestone,
        mongo::Tx,
    };
}

/// Not public API. Used by generated code.
#[doc(hidden)]
pub mod __private {
    pub use std::boxed::Box;
    pub use std::time::Duration;

    pub use inventory;
    pub use milestone_macros::__definition as definition;

    pub use crate::action::{
        Accepts, Action, ActionFuture, Call, Extract, Input, Options, Registration, RetryPolicy,
        Returned, classified,
    };
    pub use crate::definition::{
        Definition, Graph, Milestone, Outcome, OutcomeOf, OutputOf, TypeRegistration, Yields,
        check, check_undo, check_verify, name_of, node, takes,
    };
    pub use crate::mongo::tx::transactional;
}
