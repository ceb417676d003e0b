//! Workers, as they tell of themselves.

use bson::Document;

use super::{
    super::{StoreError, WorkerInfo},
    clock,
    errors::Outcome,
    session::{Reading, Session},
};

/// How many milestones whose time is over are removed at a time.
const EXPIRED: i64 = 500;

/// Stores what a worker tells, and takes the occasion to remove milestones that may go: a file has no server to do that.
pub(super) fn heartbeat(session: &mut Session<'_>, worker: &WorkerInfo) -> Outcome<()> {
    let refused = |error: bson::error::Error| StoreError::Refused {
        reason: error.to_string(),
    };
    let document = bson::serialize_to_document(worker)
        .and_then(|document| document.to_vec())
        .map_err(refused)?;
    let sql = format!(
        "INSERT INTO {} (id, doc) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc",
        session.database.workers
    );
    session
        .connection
        .prepare_cached(&sql)?
        .execute((&worker.id, document))?;
    let table = &session.database.table;
    let sql = format!(
        "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE expire_at <= ? LIMIT {EXPIRED})"
    );
    session
        .connection
        .prepare_cached(&sql)?
        .execute([clock::now().timestamp_millis()])?;
    Ok(())
}

pub(super) fn retire(session: &mut Session<'_>, worker: &str) -> Outcome<()> {
    let sql = format!("DELETE FROM {} WHERE id = ?", session.database.workers);
    session.connection.prepare_cached(&sql)?.execute([worker])?;
    session.alive.let_go(worker);
    Ok(())
}

/// What cannot be read is of another version, and no use for people.
pub(super) fn workers(reading: Reading<'_>) -> Outcome<Vec<WorkerInfo>> {
    let sql = format!("SELECT doc FROM {} ORDER BY id", reading.database.workers);
    let mut statement = reading.connection.prepare_cached(&sql)?;
    let documents = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
    let mut workers = Vec::new();
    for document in documents {
        let worker =
            Document::from_reader(&document?[..]).and_then(bson::deserialize_from_document);
        workers.extend(worker.ok());
    }
    Ok(workers)
}
