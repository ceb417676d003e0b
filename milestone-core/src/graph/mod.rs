//! The graph of a milestone: as const data, checked by the compiler, and as a validated plan, made at run time.

mod builder;
mod fixed;
mod plan;

pub use builder::{Action, Resolved};
pub use fixed::{Graph, Input, Node, takes_no_more, takes_output};
pub use plan::{GraphError, MAX_ACTIONS, MAX_NAME, Plan, PlannedAction, check_name};
