//! Why fields are not in sync.

use bson::Bson;

use crate::start::StartError;

/// An error of a [`FieldSync`](super::FieldSync).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FieldSyncError {
    /// A name that cannot be one. Nothing was written.
    #[error("`{name}` cannot be the name of a field sync: {reason}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// The builder of a runtime was given two of one name.
    #[error(
        "two field syncs are named `{name}`: the marks of one would be taken for those of the other"
    )]
    Twice {
        /// The name.
        name: String,
    },
    /// An `_id` that no single document has: an operator, such as `{ $gt: 0 }`, a regular expression or an array. Nothing was written.
    #[error(
        "the field sync `{name}` changes the one document with an `_id`, and {id} cannot be that: {reason}; if it comes from outside, read it as the type that your ids have"
    )]
    Id {
        /// The field sync.
        name: String,
        /// What was given.
        id: Box<Bson>,
        /// Why.
        reason: &'static str,
    },
    /// An update that cannot be marked in the same write. Nothing was written.
    #[error("the update cannot be made by the field sync `{name}`: {reason}")]
    Unfit {
        /// The field sync.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// There is no document with that `_id`. Nothing was written, and nothing starts.
    #[error("there is no document with the `_id` {id} in `{collection}`, so nothing was updated")]
    NotFound {
        /// The `_id`.
        id: Box<Bson>,
        /// The collection, with its database.
        collection: String,
    },
    /// The update failed. If its reply was lost, it may be made all the same, and then the document is marked too: the sweep of a worker brings
    /// its copies in sync.
    #[error("the field sync `{name}` could not update the document {id}: MongoDB: {}", .error.kind)]
    Update {
        /// The field sync.
        name: String,
        /// The `_id` of the document.
        id: Box<Bson>,
        /// What the driver says.
        error: mongodb::error::Error,
    },
    /// The document is updated and marked, and its fan-out could not be started. The sweep of a worker does it.
    #[error(
        "the document {id} is updated, but its copies are not yet in sync: the sweep of `{name}` does that, since {error}"
    )]
    NotStarted {
        /// The field sync.
        name: String,
        /// The `_id` of the document.
        id: Box<Bson>,
        /// Why.
        error: Box<StartError>,
    },
    /// The database does not answer, or says no.
    #[error("the field sync `{name}`: MongoDB: {}", .error.kind)]
    Database {
        /// The field sync.
        name: String,
        /// What the driver says.
        error: mongodb::error::Error,
    },
    /// What was left could not be started. It is tried again by the next sweep.
    #[error("the sweep of `{name}` could not start everything that was left: {reason}")]
    Sweep {
        /// The field sync.
        name: String,
        /// Why.
        reason: String,
    },
}

impl FieldSyncError {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } => "field_sync_name",
            Self::Twice { .. } => "field_sync_twice",
            Self::Id { .. } => "field_sync_id",
            Self::Unfit { .. } => "field_sync_unfit",
            Self::NotFound { .. } => "field_sync_not_found",
            Self::Update { .. } => "field_sync_update",
            Self::NotStarted { .. } => "field_sync_not_started",
            Self::Database { .. } => "field_sync_database",
            Self::Sweep { .. } => "field_sync_sweep",
        }
    }
}
