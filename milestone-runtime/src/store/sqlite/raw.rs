//! Documents as they are, for tests.

use bson::Document;
use milestone_core::record::MilestoneId;

use super::{
    super::{StoreError, StoreFuture},
    SqliteStore,
    row::{self, Row, Stored},
};

impl SqliteStore {
    /// Puts a document in its place as it is, whatever it says: for tests (feature `testing`).
    pub fn plant(&self, document: Document) -> StoreFuture<'static, ()> {
        self.threads.write(move |session| {
            let id = document.get("_id").map(MilestoneId::try_from);
            let Some(Ok(id)) = id else {
                return Err(StoreError::Refused {
                    reason: "it has no _id that is one".to_owned(),
                }
                .into());
            };
            Row::new(&id, &document)?.replace(session)
        })
    }

    /// Reads a document as it is: for tests (feature `testing`).
    pub fn raw(&self, id: MilestoneId) -> StoreFuture<'static, Option<Document>> {
        self.threads.read(move |reading| {
            match row::read(reading.connection, reading.database, &id)? {
                Stored::Missing => Ok(None),
                Stored::Broken(unreadable) => Err(StoreError::Other(unreadable.to_string()).into()),
                Stored::Document(document) => Ok(Some(document)),
            }
        })
    }
}
