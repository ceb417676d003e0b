//! Tables in the SQLite file that holds the milestones.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// How long a write waits for those of other processes.
const BUSY: Duration = Duration::from_secs(30);

/// A connection of its own to the file.
#[derive(Clone)]
pub(crate) struct File {
    connection: Arc<Mutex<Connection>>,
}

impl File {
    /// Opens the file, and makes the tables if they are not there yet.
    pub(crate) fn open(path: &str, tables: &str) -> Result<Self, rusqlite::Error> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        // As the store of the milestones has it: readers then do not wait for writers.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.execute_batch(tables)?;
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
        })
    }

    /// Runs a transaction on a thread that may block. After an error nothing of it is stored.
    pub(crate) async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<rusqlite::Error> + Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    {
        let connection = Arc::clone(&self.connection);
        let task = tokio::task::spawn_blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&write)?;
            write.commit()?;
            Ok(result)
        });
        task.await.expect("work on the file does not panic")
    }
}
