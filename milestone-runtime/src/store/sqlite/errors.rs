//! What can go wrong on the way to the disk.

use std::sync::Arc;

use rusqlite::ErrorCode;

use super::super::StoreError;
use super::names::Place;

/// What the work on a connection fails with.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    Store(StoreError),
}

pub(super) type Outcome<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    /// The error that the caller sees, with the name of the file.
    pub(super) fn at(self, place: &Place) -> StoreError {
        let error = match self {
            Self::Store(error) => return error,
            Self::Sql(error) => error,
        };
        let server = place.to_string();
        let unreachable = |reason: String| StoreError::Unreachable {
            server: server.clone(),
            reason,
            sent: false,
        };
        let unsupported = |reason: String| StoreError::Unsupported {
            server: server.clone(),
            reason,
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                unreachable(format!("another process keeps it locked ({error})"))
            }
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
                unreachable(error.to_string())
            }
            Some(ErrorCode::NotADatabase) => {
                unsupported("it is no SQLite database; name another file".to_owned())
            }
            Some(ErrorCode::DatabaseCorrupt) => unsupported(format!(
                "it is damaged ({error}); restore it, or see `.recover` of the sqlite3 shell"
            )),
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                unsupported(error.to_string())
            }
            Some(ErrorCode::TooBig) => StoreError::Refused {
                reason: error.to_string(),
            },
            _ => StoreError::Sqlite(Arc::new(error)),
        }
    }

    /// Whether a new connection may do better than this one.
    pub(super) fn is_of_the_connection(&self) -> bool {
        let Self::Sql(error) = self else {
            return false;
        };
        matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
            )
        )
    }

    pub(super) fn is_busy(&self) -> bool {
        let Self::Sql(error) = self else {
            return false;
        };
        matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }
}

/// The same error again: a transaction that fails does so for all whose writes were in it.
pub(super) fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unreachable {
            server,
            reason,
            sent,
        } => StoreError::Unreachable {
            server: server.clone(),
            reason: reason.clone(),
            sent: *sent,
        },
        StoreError::Unsupported { server, reason } => StoreError::Unsupported {
            server: server.clone(),
            reason: reason.clone(),
        },
        StoreError::Refused { reason } => StoreError::Refused {
            reason: reason.clone(),
        },
        StoreError::Sqlite(error) => StoreError::Sqlite(Arc::clone(error)),
        StoreError::Index {
            collection,
            name,
            reason,
        } => StoreError::Index {
            collection: collection.clone(),
            name: name.clone(),
            reason: reason.clone(),
        },
        other => StoreError::Other(other.to_string()),
    }
}

pub(super) fn stopped() -> StoreError {
    StoreError::Other("the store has stopped".to_owned())
}
