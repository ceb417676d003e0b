//! The MongoDB toolkit: what applications use transactions, two-phase commit and helper collections for, as parts that work with milestones
//! and by themselves.

pub(crate) mod cleaner;
pub(crate) mod fate;
pub(crate) mod trace;
