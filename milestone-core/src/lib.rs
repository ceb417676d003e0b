//! The pure parts of milestone: the stored document, the graph, the state machine, limits and errors.
//!
//! Nothing here does I/O or knows a clock: the time comes in with every event. The runtime moves data and time; what is decided is
//! decided here, so that all of it is tested without a database.

pub mod graph;
pub mod lease;
pub mod limits;
pub mod machine;
pub mod options;
pub mod patch;
pub mod record;
pub mod retry;
