//! Why there is no id.

use crate::store::StoreError;

/// An error of a [`Sequence`](super::Sequence).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// A name that cannot be one.
    #[error("`{name}` cannot be the name of a sequence: {reason}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// A width that cannot be one.
    #[error(
        "the sequence `{name}` cannot have numbers of {width} digits: from 0 to 19 are accepted, and the default is 4"
    )]
    Width {
        /// The sequence.
        name: String,
        /// The width.
        width: usize,
    },
    /// The time of the server is out of the calendar.
    #[error("the sequence `{name}` cannot tell its period: {reason}")]
    Time {
        /// The sequence.
        name: String,
        /// Why.
        reason: String,
    },
    /// The database does not answer, or says no.
    #[error("the sequence `{name}` gives no id: MongoDB: {}", .error.kind)]
    Database {
        /// The sequence.
        name: String,
        /// What the driver says.
        error: mongodb::error::Error,
    },
    /// Somebody else has written to a counter.
    #[error(
        "the counter `{counter}` in `{collection}` cannot be counted on: `last` is {found}, not a whole number of 64 bits from 1 on"
    )]
    Counter {
        /// Its `_id`.
        counter: String,
        /// Its collection.
        collection: String,
        /// What `last` is.
        found: String,
    },
    /// What [`Context::next_id`](crate::action::Context::next_id) gives cannot be noted, or the note cannot be read.
    #[error(
        "the sequence `{name}` gives no id, since it cannot be noted for the next attempt: {error}"
    )]
    Note {
        /// The sequence.
        name: String,
        /// Why.
        error: StoreError,
    },
}

impl SequenceError {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } => "sequence_name",
            Self::Width { .. } => "sequence_width",
            Self::Time { .. } => "sequence_time",
            Self::Database { .. } => "sequence_database",
            Self::Counter { .. } => "sequence_counter",
            Self::Note { .. } => "sequence_note",
        }
    }
}
