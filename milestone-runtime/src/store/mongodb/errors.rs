//! What an error of the driver means.

use std::sync::Arc;

use mongodb::error::{Error, ErrorKind, WriteFailure};

use crate::store::StoreError;

/// What the driver says, in the words for people: without labels, sources and the server's whole reply.
pub(crate) fn reason(error: &Error) -> String {
    error.kind.to_string()
}

pub(super) fn store_error(server: &str, error: Error) -> StoreError {
    if is_away(&error) {
        StoreError::Unreachable {
            server: server.to_owned(),
            reason: reason(&error),
            sent: !never_sent(&error),
        }
    } else {
        match &*error.kind {
            ErrorKind::Authentication { .. }
            | ErrorKind::IncompatibleServer { .. }
            | ErrorKind::InvalidTlsConfig { .. } => StoreError::Unsupported {
                server: server.to_owned(),
                reason: reason(&error),
            },
            _ => StoreError::MongoDb(Arc::new(error)),
        }
    }
}

/// Whether the server cannot be reached, or is not one that takes writes, now.
pub(crate) fn is_away(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Io(_)
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::DnsResolve { .. } => true,
        ErrorKind::Command(command) => CHANGING.contains(&command.code),
        _ => false,
    }
}

/// Whether the driver gave up before it sent anything.
pub(super) fn never_sent(error: &Error) -> bool {
    matches!(
        &*error.kind,
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. }
    )
}

/// The code of a command that failed as a whole.
pub(crate) fn command_code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        _ => None,
    }
}

/// Whether a code says that another document has the key.
pub(crate) const fn is_duplicate(code: i32) -> bool {
    matches!(code, 11000 | 11001 | 12582)
}

/// Whether an error says that another document has the key, in whatever shape: of a write, of one of many, or of a command.
pub(crate) fn is_duplicate_key(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::InsertMany(many) => many
            .write_errors
            .iter()
            .flatten()
            .any(|error| is_duplicate(error.code)),
        ErrorKind::BulkWrite(bulk) => bulk
            .write_errors
            .values()
            .any(|error| is_duplicate(error.code)),
        _ => command_code(error).is_some_and(is_duplicate),
    }
}

/// Whether another transaction, or another write, has changed the same document.
pub(crate) fn is_write_conflict(error: &Error) -> bool {
    command_code(error) == Some(112)
}

/// The codes of a server that starts, stops, or is not the primary.
const CHANGING: [i32; 9] = [91, 189, 10058, 10107, 11600, 11602, 13435, 13436, 9001];

/// The codes of a server, or of one between it and us, that could not do it now.
const TRANSIENT: [i32; 38] = [
    6, 7, 24, 46, 50, 63, 64, 70, 89, 112, 117, 133, 134, 146, 150, 202, 225, 234, 237, 246, 249,
    251, 262, 267, 290, 292, 314, 317, 358, 365, 384, 391, 412, 462, 11601, 13388, 13297, 14031,
];

/// The codes that say that this client may not, or not yet: a matter of the deployment, not of the document.
const RIGHTS: [i32; 4] = [11, 13, 18, 8000];

/// Whether a write error of one statement says that the server will never take it.
pub(crate) fn is_for_good(code: i32) -> bool {
    !(CHANGING.contains(&code) || TRANSIENT.contains(&code) || RIGHTS.contains(&code))
}

/// Whether a code says that this client may not do it.
pub(crate) fn is_of_rights(code: i32) -> bool {
    RIGHTS.contains(&code)
}

/// Whether a command failed as a whole since the server does not take what is in it: too large, too deep, or not BSON in its eyes.
pub(super) const fn is_of_content(code: i32) -> bool {
    matches!(code, 15 | 22 | 10334 | 17280 | 17419 | 17420)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_lost_connection_is_an_unreachable_server() {
        let error = store_error(
            "a.example:27017",
            Error::from(io::Error::from(io::ErrorKind::ConnectionReset)),
        );
        assert_eq!(
            error.to_string(),
            "the database at a.example:27017 cannot be reached: I/O error: connection reset"
        );
        assert_eq!(error.code(), "store_unreachable");
        let other = store_error("a.example:27017", Error::custom("other"));
        assert_eq!(other.code(), "store_mongodb");
    }

    #[test]
    fn what_passes_is_not_refused_for_good() {
        for code in [112, 64, 10107, 13, 50, 14031] {
            assert!(!is_for_good(code), "{code}");
        }
        for code in [15, 17419, 10334, 121, 11000, 28, 99_999] {
            assert!(is_for_good(code), "{code}");
        }
    }

    #[test]
    fn a_command_that_may_not_run_does_not_blame_its_content() {
        assert!(is_of_content(10334) && is_of_content(15));
        assert!(!is_of_content(13) && !is_of_content(10107) && !is_of_content(59));
    }

    #[test]
    fn f20_duplicate_keys_have_three_codes() {
        assert!(is_duplicate(11000) && is_duplicate(11001) && is_duplicate(12582));
        assert!(!is_duplicate(112));
    }

    fn parsed<T: serde::de::DeserializeOwned>(reply: bson::Document) -> T {
        bson::deserialize_from_document(reply).unwrap()
    }

    #[test]
    fn f20_a_duplicate_key_is_an_error_of_many_shapes() {
        use bson::doc;
        use mongodb::error::{BulkWriteError, InsertManyError, WriteConcernError};
        let shapes = |code: i32| {
            let write = || parsed(doc! { "code": code, "errmsg": "E" });
            let command = doc! { "code": code, "codeName": "", "errmsg": "E" };
            let many = doc! { "writeErrors": [
                { "index": 0, "code": 14, "errmsg": "other" }, { "index": 1, "code": code, "errmsg": "E" },
            ] };
            let mut bulk = BulkWriteError::default();
            bulk.write_errors.insert(1, write());
            [
                ErrorKind::Write(WriteFailure::WriteError(write())),
                ErrorKind::Command(parsed(command)),
                ErrorKind::InsertMany(parsed::<InsertManyError>(many)),
                ErrorKind::BulkWrite(bulk),
            ]
        };
        for code in [11000, 11001, 12582] {
            for shape in shapes(code) {
                assert!(is_duplicate_key(&Error::from(shape.clone())), "{shape}");
            }
        }
        for shape in shapes(121) {
            assert!(!is_duplicate_key(&Error::from(shape.clone())), "{shape}");
        }
        let concern: WriteConcernError =
            parsed(doc! { "code": 64, "codeName": "", "errmsg": "no majority" });
        let concern = ErrorKind::Write(WriteFailure::WriteConcernError(concern));
        assert!(!is_duplicate_key(&Error::from(concern)));
        assert!(!is_duplicate_key(&Error::custom(11000)));
    }
}
