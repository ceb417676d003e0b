//! A real server that is killed and started again in the middle of work, connections that are cut, and worker processes that are frozen
//! longer than their lease. Whatever stops a server has one of its own.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

mod bench;
mod freezes;
mod outages;
mod restarts;
mod writes;
