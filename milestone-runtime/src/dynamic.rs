//! Graphs that are made at run time, with any names: for what is known only then.

pub use milestone_core::graph::Action;
