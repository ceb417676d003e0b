//! Drawings of a graph: in the terminal, for Graphviz and for Mermaid.

mod condense;
pub(crate) mod diagram;
mod lanes;
pub(crate) mod terminal;
