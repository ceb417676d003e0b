//! The sessions in which workers have transactions. A transaction of a worker that died keeps its locks until the server gives it up, which
//! takes a minute by default; whoever takes over ends it at once.

use std::{collections::HashMap, time::Duration};

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt as _;
use mongodb::{Collection, IndexModel, error::Error, options::IndexOptions};

use super::{MongoStore, connect::Connection};
use crate::store::StoreError;

/// Whose sessions were ended here, and when.
pub(super) type Ended = tokio::sync::Mutex<HashMap<String, DateTime>>;

/// How long that is remembered.
const REMEMBERED: Duration = Duration::from_hours(1);

/// How long it is known whose a session is. Whoever uses it for longer notes it again.
pub(crate) const NOTED_FOR: Duration = Duration::from_hours(48);

impl MongoStore {
    /// Makes the index by which sessions are forgotten.
    pub(crate) async fn make_sessions(&self) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let expires = IndexOptions::builder()
            .name("milestone_expire".to_owned())
            .expire_after(NOTED_FOR)
            .build();
        let index = IndexModel::builder()
            .keys(doc! { "at": 1 })
            .options(expires)
            .build();
        let made = sessions(&connection).create_index(index).await;
        made.map(|_| ()).map_err(|error| connection.error(error))
    }

    /// Notes that a worker has transactions in a session.
    pub(crate) async fn note_session(
        &self,
        session: &Document,
        worker: &str,
        at: DateTime,
    ) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let noted = sessions(&connection)
            .update_one(
                doc! { "_id": session.clone() },
                doc! { "$set": { "worker": worker, "at": at } },
            )
            .upsert(true)
            .await;
        noted.map(|_| ()).map_err(|error| connection.error(error))
    }

    /// Ends the sessions of a worker on the server, and with them its transactions that are not over; says how many they were. One who takes
    /// over many milestones does it once for all that were `taken` before. What is noted of the sessions stays until it expires: a worker that
    /// lives all the same goes on in them, and may die later.
    pub(crate) async fn end_sessions(
        &self,
        worker: &str,
        taken: DateTime,
        now: DateTime,
    ) -> Result<usize, StoreError> {
        let mut before = self.ended.lock().await;
        if before.get(worker).is_some_and(|at| *at >= taken) {
            return Ok(0);
        }
        let ended = self.end_noted(worker).await?;
        let remembered = i64::try_from(REMEMBERED.as_millis()).unwrap_or(i64::MAX);
        before.retain(|_, at| now.timestamp_millis() - at.timestamp_millis() < remembered);
        before.insert(worker.to_owned(), now);
        Ok(ended)
    }

    async fn end_noted(&self, worker: &str) -> Result<usize, StoreError> {
        let connection = self.connection()?;
        let ended = async {
            let found = sessions(&connection)
                .find(doc! { "worker": worker })
                .await?;
            let found: Vec<RawDocumentBuf> = found.try_collect().await?;
            let ids: Vec<Bson> = found.iter().filter_map(id).collect();
            if ids.is_empty() {
                return Ok(0);
            }
            let admin = connection.client.database("admin");
            admin.run_command(doc! { "killSessions": ids }).await?;
            Ok::<_, Error>(found.len())
        };
        ended.await.map_err(|error| connection.error(error))
    }
}

/// Removes what is noted of a worker that ends in order: it has no transactions any more.
pub(super) async fn forget(connection: &Connection, worker: &str) -> Result<(), Error> {
    sessions(connection)
        .delete_many(doc! { "worker": worker })
        .await
        .map(|_| ())
}

fn sessions(connection: &Connection) -> Collection<RawDocumentBuf> {
    let name = connection.milestones.name();
    connection.database.collection(&format!("{name}.sessions"))
}

fn id(document: &RawDocumentBuf) -> Option<Bson> {
    Bson::try_from(document.get("_id").ok()??).ok()
}
