//! What workers tell of themselves, for people.

use bson::{RawDocumentBuf, doc};
use futures_util::TryStreamExt as _;

use super::{connect::Connection, read::Concern, sessions};
use crate::store::{StoreError, WorkerInfo};

pub(super) async fn heartbeat(
    connection: &Connection,
    worker: &WorkerInfo,
) -> Result<(), StoreError> {
    let encoded = bson::serialize_to_raw_document_buf(worker)
        .map_err(|error| StoreError::Other(error.to_string()))?;
    let replaced = connection
        .workers
        .replace_one(doc! { "_id": &worker.id }, encoded)
        .upsert(true)
        .await;
    replaced
        .map(|_| ())
        .map_err(|error| connection.error(error))
}

pub(super) async fn retire(connection: &Connection, worker: &str) -> Result<(), StoreError> {
    let removed = async {
        sessions::forget(connection, worker).await?;
        connection.workers.delete_one(doc! { "_id": worker }).await
    };
    removed
        .await
        .map(|_| ())
        .map_err(|error| connection.error(error))
}

/// All that can be read: an entry of a later version, or one made by hand, is left out.
pub(super) async fn workers(connection: &Connection) -> Result<Vec<WorkerInfo>, StoreError> {
    let cursor = connection
        .workers
        .find(doc! {})
        .with_options(Concern::Majority.options(connection))
        .sort(doc! { "_id": 1 })
        .await
        .map_err(|error| connection.error(error))?;
    let documents: Vec<RawDocumentBuf> = cursor
        .try_collect()
        .await
        .map_err(|error| connection.error(error))?;
    Ok(documents
        .iter()
        .filter_map(|document| bson::deserialize_from_slice(document.as_bytes()).ok())
        .collect())
}
