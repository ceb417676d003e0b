//! placeholder

pub mod action;
mod definition;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use definition::{Definition, Graph, Milestone, Node, TypeRegistration};
pub use milestone_core as core;

/// Not public API. Used by generated code.
#[doc(hidden)]
pub mod __private {
    pub use std::boxed::Box;
    pub use std::time::Duration;

    pub use inventory;

    pub use crate::__returned as returned;
    pub use crate::action::{
        __via as via, Accepts, Action, ActionFuture, Call, Extract, Input, Options, Registration, RetryPolicy, Returned,
    };
    pub use crate::definition::{Definition, Graph, Milestone, TypeRegistration, node, takes, undo_name};
}
