//! The books of the card service in a SQLite file.

use rusqlite::{OptionalExtension, params};

use super::CardError;
use crate::file::File;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, amount INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS charge_requests (key TEXT NOT NULL) STRICT;
";

#[derive(Clone)]
pub(super) struct SqliteCards {
    file: File,
}

impl SqliteCards {
    pub(super) fn open(path: &str) -> Result<Self, CardError> {
        let file = File::open(path, TABLES)?;
        Ok(Self { file })
    }

    /// Whether it was charged now; otherwise the key was used before.
    pub(super) async fn charge(&self, key: &str, amount: i64) -> Result<bool, CardError> {
        let key = key.to_owned();
        self.file
            .write(move |write| {
                write.execute("INSERT INTO charge_requests VALUES (?1)", params![key])?;
                let charged = write.execute(
                    "INSERT INTO charges VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    params![key, amount],
                )?;
                Ok(charged == 1)
            })
            .await
    }

    pub(super) async fn find(&self, key: &str) -> Result<Option<i64>, CardError> {
        let key = key.to_owned();
        self.file
            .write(move |read| {
                let query = "SELECT amount FROM charges WHERE key = ?1";
                let amount = read.query_row(query, params![key], |row| row.get(0));
                Ok(amount.optional()?)
            })
            .await
    }

    pub(super) async fn requests(&self, key: &str) -> Result<u64, CardError> {
        let key = key.to_owned();
        self.file
            .write(move |read| {
                let query = "SELECT count(*) FROM charge_requests WHERE key = ?1";
                let requests: i64 = read.query_row(query, params![key], |row| row.get(0))?;
                Ok(requests.unsigned_abs())
            })
            .await
    }
}
