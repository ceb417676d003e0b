//! Milestones: a graph for a type (`derive`) or in place (`in_place`), as const data.

pub(crate) mod derive;
pub(crate) mod in_place;
mod table;
