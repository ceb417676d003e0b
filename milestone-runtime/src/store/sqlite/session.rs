//! What the work on the database is done with.

use rusqlite::Connection;

use super::{alive::Alive, names::Database};

/// A transaction that writes, shared by all writes that waited for it.
pub(super) struct Session<'a> {
    pub(super) connection: &'a Connection,
    pub(super) database: &'a Database,
    pub(super) alive: &'a mut Alive,
    /// Whether something may be due now or may have ended.
    pub(super) hint: bool,
}

/// A connection that reads.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) connection: &'a Connection,
    pub(super) database: &'a Database,
}
