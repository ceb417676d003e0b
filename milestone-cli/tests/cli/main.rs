//! The real binary `milestone`, on both stores: what each command does and says, and how it exits.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

mod commands;
mod doctor;
mod hostile;
mod kill;
mod many;
mod place;
mod reading;
mod tool;
