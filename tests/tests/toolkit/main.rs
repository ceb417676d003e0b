//! The MongoDB toolkit.

mod sequence;
