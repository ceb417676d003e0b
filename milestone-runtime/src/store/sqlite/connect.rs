//! Connections to the file.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};

use super::{
    super::StoreError,
    errors::{Fault, Outcome},
    names::{Database, Place},
    schema,
};

/// How long a call waits while another process writes.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many statements a connection keeps prepared.
const STATEMENTS: usize = 64;

/// The connection that writes. The file and the tables are made if they are missing.
pub(super) fn writing(database: &Database) -> Outcome<Connection> {
    let connection = match &database.place {
        Place::File(path) => {
            look_at(path)?;
            Connection::open_with_flags(path, flags() | OpenFlags::SQLITE_OPEN_CREATE)?
        }
        Place::Memory => Connection::open_in_memory()?,
    };
    let connection = prepared(connection)?;
    let begin = Instant::now();
    // SQLite does not wait where two processes turn to the write-ahead log at once: it calls one of them busy.
    while let Err(fault) = set_up(&connection, database) {
        if !fault.is_busy() || begin.elapsed() > PATIENCE {
            return Err(fault);
        }
        std::thread::sleep(pause(3));
    }
    Ok(connection)
}

/// A connection that reads a file which one that writes has made.
pub(super) fn reading(database: &Database, path: &Path) -> Outcome<Connection> {
    look_at(path)?;
    let connection = prepared(Connection::open_with_flags(path, flags())?)?;
    connection.pragma_update(None, "query_only", true)?;
    if schema::is_complete(&connection, database)? {
        return Ok(connection);
    }
    let reason = "its tables are not there yet; open the store first".to_owned();
    Err(StoreError::Unsupported {
        server: database.place.to_string(),
        reason,
    }
    .into())
}

/// What is missing in the file, by name. Nothing is made, the file neither.
pub(super) fn lacks(database: &Database) -> Result<Vec<String>, StoreError> {
    let path = match &database.place {
        // Nobody else is there, so there is no name to be mistaken about.
        Place::Memory => return Ok(Vec::new()),
        Place::File(path) if !path.exists() => return Ok(vec![database.collection.clone()]),
        Place::File(path) => path,
    };
    look_at(path)?;
    let lacks = || -> Outcome<Vec<String>> {
        let connection = prepared(Connection::open_with_flags(path, flags())?)?;
        connection.pragma_update(None, "query_only", true)?;
        schema::lacks(&connection, database)
    };
    lacks().map_err(|fault| fault.at(&database.place))
}

/// One thread uses a connection. No `SQLITE_OPEN_URI`: a file may have any name.
fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Says better than SQLite why a file cannot be opened.
fn look_at(path: &Path) -> Result<(), StoreError> {
    let unusable = |reason: String| {
        Err(StoreError::Unsupported {
            server: path.display().to_string(),
            reason,
        })
    };
    if path.is_dir() {
        return unusable("it is a folder; name a file".to_owned());
    }
    match path.parent() {
        Some(folder) if !folder.is_dir() => unusable(format!(
            "there is no folder `{}`; make it, or name another file",
            folder.display()
        )),
        _ => Ok(()),
    }
}

fn prepared(mut connection: Connection) -> Outcome<Connection> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let mut began = Instant::now();
    connection.busy_handler(Some(move |tries| {
        if tries == 0 {
            began = Instant::now();
        }
        std::thread::sleep(pause(tries));
        began.elapsed() < PATIENCE
    }))?;
    Ok(connection)
}

/// How long to wait until the next try, by chance, so that nobody always comes too late.
fn pause(tries: i32) -> Duration {
    let most = if tries < 5 { 1_000 } else { 8_000 };
    Duration::from_micros(fastrand::u64(100..most))
}

fn set_up(connection: &Connection, database: &Database) -> Outcome<()> {
    if matches!(database.place, Place::File(_)) {
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if mode != "wal" {
            let reason = format!(
                "the file system does not bear a write-ahead log (it gives the journal mode `{mode}`)"
            );
            return Err(StoreError::Unsupported {
                server: database.place.to_string(),
                reason,
            }
            .into());
        }
    }
    // What was answered survives a power loss, too; on macOS that takes a call of its own.
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON",
    )?;
    if schema::is_complete(connection, database)? {
        return Ok(());
    }
    in_transaction(connection, || {
        schema::create(connection, database)?;
        if schema::is_complete(connection, database)? {
            return Ok(());
        }
        Err(Fault::Store(StoreError::Other(
            "the tables were not made".to_owned(),
        )))
    })
}

/// Does it in a transaction that may write; an error undoes all of it.
pub(super) fn in_transaction<T>(
    connection: &Connection,
    work: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = work().and_then(|value| {
        connection.execute_batch("COMMIT")?;
        Ok(value)
    });
    if result.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    result
}
