//! The MongoDB toolkit: what applications use transactions, two-phase commit and helper collections for, as parts that work with milestones
//! and by themselves.
