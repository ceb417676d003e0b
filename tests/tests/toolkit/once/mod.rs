//! `cx.once(..)`: writes that are applied exactly once.

mod bench;
mod clean;
mod cost;
mod exact;
mod given_up;
mod insert;
mod kills;
mod refused;
mod undo;
mod zombie;
