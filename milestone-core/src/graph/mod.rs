//! The graph of a milestone: as const data, checked by the compiler, and as a validated plan, made at run time.

mod fixed;
mod plan;

pub use fixed::{Graph, Input, Node};
pub(crate) use plan::check_name;
pub use plan::{GraphError, MAX_ACTIONS, MAX_NAME, Plan, PlannedAction};
