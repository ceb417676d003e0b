//! Reading documents by `_id`.
//!
//! What a decision rests on after a write whose fate is not known is read *settled*: the primary proves with a write of its own that it
//! still is the primary, so what it returns is neither stale (as a majority read can be right after a failover) nor to be rolled back.

use std::collections::HashMap;

use bson::{Bson, DateTime, Document, RawBsonRef, RawDocumentBuf, doc};
use futures_util::TryStreamExt as _;
use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};
use mongodb::{
    error::Error,
    options::{FindOptions, ReadConcern},
};

use super::connect::Connection;
use crate::store::StoreError;

/// How many documents are asked for at once.
const CHUNK: u32 = 1000;

/// What is known of a held document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// The token of the lease, if there is one.
    pub(super) token: Option<String>,
    /// When it ends.
    pub(super) until: Option<DateTime>,
    pub(super) rev: i64,
    pub(super) mail: i64,
}

/// How a read is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// As the primary has it now, though a failover may take it back: for decisions that a write with a filter confirms.
    Local,
    /// What a majority has.
    Majority,
    /// See the head of this file.
    Settled,
}

impl Concern {
    fn read_concern(self, is_standalone: bool) -> ReadConcern {
        match self {
            _ if is_standalone => ReadConcern::local(),
            Self::Local => ReadConcern::local(),
            Self::Majority => ReadConcern::majority(),
            Self::Settled => ReadConcern::linearizable(),
        }
    }

    /// The options of a read.
    pub(super) fn options(self, connection: &Connection) -> FindOptions {
        let mut options = FindOptions::default();
        options.read_concern = Some(self.read_concern(connection.is_standalone()));
        options.max_time = (self == Self::Settled).then(|| connection.patience());
        options
    }
}

/// A filter on many `_id`s.
pub(super) fn among(ids: &[MilestoneId]) -> Document {
    let ids: Vec<Bson> = ids.iter().cloned().map(Bson::from).collect();
    match <[Bson; 1]>::try_from(ids) {
        Ok([id]) => doc! { "_id": id },
        Err(ids) => doc! { "_id": { "$in": ids } },
    }
}

/// Reads documents, in no order.
pub(super) async fn documents(
    connection: &Connection,
    ids: &[MilestoneId],
    projection: Option<Document>,
    concern: Concern,
) -> Result<Vec<RawDocumentBuf>, Error> {
    let mut documents = Vec::with_capacity(ids.len());
    for ids in ids.chunks(CHUNK as usize) {
        let mut options = concern.options(connection);
        options.projection = projection.clone();
        options.batch_size = Some(CHUNK + 1);
        let cursor = connection
            .milestones
            .find(among(ids))
            .with_options(options)
            .await?;
        documents.append(&mut cursor.try_collect().await?);
    }
    Ok(documents)
}

/// What holds now of the leases, and of the mail, of those documents that exist.
pub(super) async fn held(
    connection: &Connection,
    ids: &[MilestoneId],
) -> Result<HashMap<MilestoneId, Held>, Error> {
    let projection = doc! { "lease.token": 1, "lease.until": 1, "rev": 1, "mail": 1 };
    let documents = documents(connection, ids, Some(projection), Concern::Settled).await?;
    Ok(documents.iter().filter_map(Held::read).collect())
}

impl Held {
    fn read(document: &RawDocumentBuf) -> Option<(MilestoneId, Self)> {
        let lease = document.get_document("lease").ok();
        let token = lease.and_then(|lease| lease.get_str("token").ok());
        let held = Self {
            token: token.map(ToOwned::to_owned),
            until: lease.and_then(|lease| lease.get_datetime("until").ok()),
            rev: integer(document, "rev"),
            mail: integer(document, "mail"),
        };
        Some((id(document)?, held))
    }
}

/// A whole number, of whatever type: somebody may have written it by hand.
#[expect(
    clippy::cast_possible_truncation,
    reason = "counters are far from the limits of a double"
)]
pub(super) fn integer(document: &RawDocumentBuf, key: &str) -> i64 {
    match document.get(key) {
        Ok(Some(RawBsonRef::Int32(number))) => i64::from(number),
        Ok(Some(RawBsonRef::Int64(number))) => number,
        Ok(Some(RawBsonRef::Double(number))) => number as i64,
        _ => 0,
    }
}

/// The record in a document.
pub(super) fn record(document: &RawDocumentBuf) -> Result<MilestoneRecord, Unreadable> {
    MilestoneRecord::from_slice(document.as_bytes())
}

/// The id of a document, if it is one that a milestone can have.
pub(super) fn id(document: &RawDocumentBuf) -> Option<MilestoneId> {
    let id = Bson::try_from(document.get("_id").ok()??).ok()?;
    MilestoneId::try_from(&id).ok()
}

/// The milestones, in the order in which they were asked for.
pub(super) async fn get(
    connection: &Connection,
    ids: &[MilestoneId],
) -> Result<Vec<Result<MilestoneRecord, Unreadable>>, StoreError> {
    let documents = documents(connection, ids, None, Concern::Majority).await;
    let documents = documents.map_err(|error| connection.error(error))?;
    let mut by_id: HashMap<MilestoneId, RawDocumentBuf> = documents
        .into_iter()
        .filter_map(|document| Some((id(&document)?, document)))
        .collect();
    Ok(ids
        .iter()
        .filter_map(|id| by_id.remove(id))
        .map(|document| record(&document))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standalone_server_has_no_majority_to_ask() {
        for concern in [Concern::Local, Concern::Majority, Concern::Settled] {
            assert_eq!(concern.read_concern(true), ReadConcern::local());
        }
        assert_eq!(
            Concern::Settled.read_concern(false),
            ReadConcern::linearizable()
        );
        assert_eq!(
            Concern::Majority.read_concern(false),
            ReadConcern::majority()
        );
    }

    #[test]
    fn one_id_is_an_equality() {
        assert_eq!(among(&["a".into()]), doc! { "_id": "a" });
        assert_eq!(
            among(&["a".into(), "b".into()]),
            doc! { "_id": { "$in": ["a", "b"] } }
        );
    }

    #[test]
    fn what_is_held_is_read_whatever_the_type_of_the_number() {
        let read = |document: Document| Held::read(&RawDocumentBuf::try_from(&document).unwrap());
        let held = Held {
            token: Some("t".to_owned()),
            until: Some(DateTime::from_millis(5)),
            rev: 3,
            mail: 2,
        };
        let lease = doc! { "token": "t", "until": DateTime::from_millis(5) };
        let document = doc! { "_id": "a", "lease": lease, "rev": 3, "mail": 2.0 };
        assert_eq!(read(document), Some(("a".into(), held)));
        let free = Held {
            token: None,
            until: None,
            rev: 4,
            mail: 0,
        };
        assert_eq!(
            read(doc! { "_id": "a", "rev": 4_i64 }),
            Some(("a".into(), free))
        );
        assert_eq!(read(doc! { "_id": 7, "rev": 4_i64 }), None);
    }
}
