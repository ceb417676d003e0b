//! For whoever writes a store: what it must keep, as checks that run. And for whoever simulates failures: a store in memory, and processes
//! that freeze and die. Behind the feature `testing`.

pub mod conformance;
mod memory;
mod process;

pub use memory::MemoryStore;
pub use process::Process;
