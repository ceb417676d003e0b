//! Where a store is, and what its tables are called.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{super::StoreError, row::Statements};

/// A place, and the names of the tables in it, quoted.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) place: Place,
    pub(super) collection: String,
    pub(super) table: String,
    pub(super) workers: String,
    /// For its rows.
    pub(super) rows: Statements,
}

#[derive(Debug)]
pub(super) enum Place {
    File(PathBuf),
    Memory,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Memory => f.write_str("memory"),
        }
    }
}

impl Database {
    /// The path is made absolute, so that SQLite takes no name for one of its special ones.
    pub(super) fn file(path: &Path, collection: &str) -> Result<Self, StoreError> {
        let unusable = |reason: String| StoreError::Unsupported {
            server: path.display().to_string(),
            reason,
        };
        let absolute = std::path::absolute(path).map_err(|error| unusable(error.to_string()))?;
        Self::new(Place::File(absolute), collection)
    }

    pub(super) fn memory(collection: &str) -> Result<Self, StoreError> {
        Self::new(Place::Memory, collection)
    }

    fn new(place: Place, collection: &str) -> Result<Self, StoreError> {
        let reason = if collection.is_empty() {
            "is empty"
        } else if collection.contains('\0') {
            "has a NUL character in it"
        } else if collection.to_ascii_lowercase().starts_with("sqlite_") {
            "starts with `sqlite_`, as only tables of SQLite's own do"
        } else {
            let (table, workers) = (quoted(collection), quoted(&format!("{collection}.workers")));
            return Ok(Self {
                place,
                collection: collection.to_owned(),
                rows: Statements::of(&table),
                table,
                workers,
            });
        };
        let collection = collection.escape_debug();
        Err(StoreError::Unsupported {
            server: place.to_string(),
            reason: format!("the collection's name `{collection}` {reason}"),
        })
    }

    /// The folder of the workers' locks; nobody else can be in a memory.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        match &self.place {
            Place::File(path) => {
                // SQLite follows links to the file itself, so whoever comes over another name must find the same folder.
                let mut folder = path
                    .canonicalize()
                    .unwrap_or_else(|_| path.clone())
                    .into_os_string();
                folder.push("-workers");
                Some(folder.into())
            }
            Place::Memory => None,
        }
    }
}

/// A name as SQL takes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
