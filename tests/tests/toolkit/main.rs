//! The MongoDB toolkit.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

mod field_sync;
mod once;
mod sequence;
mod start_in;
mod transactional;
