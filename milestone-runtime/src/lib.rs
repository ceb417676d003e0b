//! placeholder

pub mod action;
mod builder;
mod config;
mod definition;
pub mod dynamic;
mod engine;
mod error;
mod executor;
mod handle;
mod ids;
mod registry;
mod runtime;
mod start;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod uri;

pub use builder::RuntimeBuilder;
pub use definition::{Definition, Graph, Milestone, Node, TypeRegistration};
pub use engine::pass::{RunItem, RunReport};
pub use error::Error;
pub use handle::{Handle, OutcomeError};
pub use milestone_core as core;
pub use milestone_macros::{Milestone, action};
pub use registry::Method;
pub use runtime::{Robot, Runtime};
pub use start::{Conflict, Start, StartError};

/// What an application imports: `use milestone_runtime::prelude::*;`.
pub mod prelude {
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        Method, Milestone, Runtime, action,
        action::{ActionError, Context, OrFail, Output, Params, State},
        milestone,
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
        Returned,
    };
    pub use crate::definition::{
        Definition, Graph, Milestone, OutputOf, TypeRegistration, check, check_undo, name_of, node,
        takes,
    };
}
