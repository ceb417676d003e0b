//! Which store a URI means.

use std::sync::Arc;

use crate::store::{Store, StoreError, mongodb::MongoStore, sqlite::SqliteStore};

const ACCEPTED: &str = "accepted are `mongodb://host/database`, `mongodb+srv://host/database`, `sqlite:path/to/file.db` and `memory:`";

/// Makes the store of a URI; it is opened later.
pub(crate) fn store(uri: &str, collection: &str) -> Result<Arc<dyn Store>, StoreError> {
    if uri.starts_with("mongodb://") || uri.starts_with("mongodb+srv://") {
        return Ok(Arc::new(MongoStore::from_uri(uri, Some(collection))?));
    }
    if let Some(path) = uri.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path == ":memory:" {
            return Err(wrong(uri, "a store in memory is `memory:`"));
        }
        if path.is_empty() {
            return Err(wrong(uri, "it names no file"));
        }
        return Ok(Arc::new(SqliteStore::open_file(path, collection)?));
    }
    if uri == "memory:" {
        return Ok(Arc::new(SqliteStore::memory(collection)?));
    }
    Err(wrong(uri, "its scheme is not known"))
}

fn wrong(uri: &str, reason: &str) -> StoreError {
    StoreError::Uri {
        uri: without_password(uri),
        reason: format!("{reason}; {ACCEPTED}"),
    }
}

/// What stands between `://` and `@` stays unsaid.
pub(crate) fn without_password(uri: &str) -> String {
    match (uri.find("://"), uri.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            format!("{}..{}", &uri[..scheme + 3], &uri[at..])
        }
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_told() {
        assert_eq!(
            without_password("postgres://me:secret@host/db"),
            "postgres://..@host/db"
        );
        assert_eq!(without_password("redis://host"), "redis://host");
        assert_eq!(without_password("bank.db"), "bank.db");
    }

    #[test]
    fn an_unknown_scheme_says_what_is_accepted() {
        for uri in [
            "postgres://me:secret@host/db",
            "",
            "bank.db",
            "sqlite:",
            "sqlite::memory:",
            "memory",
        ] {
            let error = store(uri, "_milestones_")
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(
                error.contains("accepted are `mongodb://") && !error.contains("secret"),
                "{uri}: {error}"
            );
        }
    }
}
