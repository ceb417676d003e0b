//! What a database call can fail with.

use std::sync::Arc;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The server cannot be reached, now.
    #[error("the database at {server} cannot be reached: {reason}")]
    Unreachable {
        /// The host, or the file.
        server: String,
        /// Why.
        reason: String,
        /// Whether the call may have arrived all the same, and only its reply was lost.
        sent: bool,
    },
    /// The server is not one that can be used.
    #[error("the database at {server} cannot be used: {reason}")]
    Unsupported {
        /// The host, or the file.
        server: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Nothing was ever stored there.
    #[error(
        "there is no collection `{collection}` at {server}: either nothing was ever started there, or the URI or the name of the collection is mistyped"
    )]
    Absent {
        /// The host and the database, or the file.
        server: String,
        /// The collection.
        collection: String,
    },
    /// An index is not as it must be.
    #[error("the index `{name}` of `{collection}` is not as it must be: {reason}")]
    Index {
        /// The collection.
        collection: String,
        /// The index.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A document, or a value in it, that the server does not take.
    #[error("the database does not take it: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// An error of the MongoDB driver or server.
    #[error("MongoDB: {}", .0.kind)]
    MongoDb(#[from] Arc<mongodb::error::Error>),
    /// An error of SQLite.
    #[error("SQLite: {0}")]
    Sqlite(#[from] Arc<rusqlite::Error>),
    /// A URI that is none.
    #[error("`{uri}` is no store: {reason}")]
    Uri {
        /// The URI, without its password.
        uri: String,
        /// What is accepted.
        reason: String,
    },
    /// Anything else, such as a value that BSON cannot hold.
    #[error("{0}")]
    Other(String),
}

impl StoreError {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "store_unreachable",
            Self::Unsupported { .. } => "store_unsupported",
            Self::Absent { .. } => "store_absent",
            Self::Index { .. } => "store_index",
            Self::Refused { .. } => "store_refused",
            Self::MongoDb(_) => "store_mongodb",
            Self::Sqlite(_) => "store_sqlite",
            Self::Uri { .. } => "store_uri",
            Self::Other(_) => "store_other",
        }
    }
}
