//! An insertion that is made once.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
};

use bson::{Bson, Document};

use super::{Once, OnceError, Written, reply::Reply, update::was_moved, writer::Writer};
use crate::mongo::trace::{MARKERS, Marker};

/// An insertion that is made once: see [`Once::insert_one`].
#[derive(Clone, Debug)]
#[must_use = "nothing is written before it is awaited"]
pub struct InsertOne {
    once: Once,
    document: Document,
}

/// A document that was inserted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Inserted {
    /// Its `_id`.
    pub id: Bson,
    /// When.
    pub written: Written,
}

impl InsertOne {
    pub(super) const fn new(once: Once, document: Document) -> Self {
        Self { once, document }
    }

    async fn run(self) -> Result<Inserted, OnceError> {
        let marker = self.once.own_marker()?;
        let given = self.document.get("_id").cloned();
        let is_marked = given.is_some();
        let id = given.unwrap_or_else(|| self.once.made_id(&marker.action));
        let mut writer = self.once.writer(id.clone());
        let document = completed(self.document, &id).map_err(|reason| OnceError::Change {
            target: writer.target.clone(),
            reason,
        })?;
        let using = writer.claim(&marker)?;
        let marker = is_marked.then_some(&marker);
        let result = insert(&mut writer, marker, &document).await;
        using.end(result).map(|written| Inserted { id, written })
    }
}

impl IntoFuture for InsertOne {
    type Output = Result<Inserted, OnceError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The document with its `_id`, first as MongoDB stores it.
pub(super) fn completed(document: Document, id: &Bson) -> Result<Document, String> {
    if document.contains_key(MARKERS) {
        return Err(format!(
            "it has the field `{MARKERS}`, which milestone keeps"
        ));
    }
    if document.get("_id").is_some_and(|given| given != id) {
        return Err("the document to insert has another `_id` than the filter".to_owned());
    }
    let mut completed = Document::new();
    completed.insert("_id", id.clone());
    completed.extend(document);
    Ok(completed)
}

/// The document as it is inserted with a marker.
pub(super) fn with_marker(document: &Document, marker: Document) -> Document {
    let mut document = document.clone();
    document.insert(MARKERS, vec![marker]);
    document
}

async fn insert(
    writer: &mut Writer,
    marker: Option<&Marker>,
    document: &Document,
) -> Result<Written, OnceError> {
    writer.prepare().await?;
    loop {
        let error = match attempt(writer, marker, document).await {
            Ok(Some(written)) => return Ok(written),
            Ok(None) => writer.late(),
            Err(error) => error,
        };
        writer.again(error).await?;
    }
}

/// One try; `None`: it was too late.
async fn attempt(
    writer: &mut Writer,
    marker: Option<&Marker>,
    document: &Document,
) -> Result<Option<Written>, OnceError> {
    let fence = writer.fence().await?;
    if let Some(marker) = marker
        && was_moved(writer, marker).await?
    {
        return Ok(Some(Written::Before));
    }
    let command = match marker {
        Some(marker) => writer.insert(&with_marker(document, writer.stored(marker)), &fence),
        None => writer.insert(document, &fence),
    };
    match writer.write(command, &fence).await {
        Reply::Applied => {
            if let Some(marker) = marker {
                writer.left(marker);
            }
            Ok(Some(Written::Now))
        }
        Reply::Unsettled(error) | Reply::Refused(error) => Err(error),
        Reply::Late | Reply::Missed => Ok(None),
        Reply::Exists { by_id: true, .. } if marker.is_none() => settled(writer).await,
        Reply::Exists { by_id, reason } => match (writer.read(&writer.by_id()).await?, marker) {
            (Some(seen), Some(marker)) if seen.has(marker) => {
                writer.left(marker);
                Ok(Some(Written::Before))
            }
            (Some(_), Some(_)) => {
                writer.confirm().await?;
                Err(OnceError::Exists {
                    target: writer.target.clone(),
                })
            }
            // The `_id` is this write's own.
            (Some(_), None) => Ok(Some(Written::Before)),
            (None, _) if by_id => Ok(None),
            (None, _) => Err(writer.duplicate(reason)),
        },
    }
}

/// That the document is there, also for a majority: the reply of the server's that says so does not wait for one.
async fn settled(writer: &Writer) -> Result<Option<Written>, OnceError> {
    Ok(writer.read(&writer.by_id()).await?.map(|_| Written::Before))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_document_gets_its_id_first() {
        let document = completed(doc! { "a": 1 }, &Bson::Int32(7)).unwrap();
        assert_eq!(document.keys().collect::<Vec<_>>(), ["_id", "a"]);
        let document = completed(doc! { "a": 1, "_id": 7 }, &Bson::Int32(7)).unwrap();
        assert_eq!(document, doc! { "_id": 7, "a": 1 });
        assert_eq!(document.keys().collect::<Vec<_>>(), ["_id", "a"]);
        assert!(completed(doc! { "_id": 8 }, &Bson::Int32(7)).is_err());
        assert!(completed(doc! { "pendingMilestones": 8 }, &Bson::Int32(7)).is_err());
    }

    #[test]
    fn the_marker_stands_in_what_is_inserted() {
        let marked = with_marker(&doc! { "_id": 7 }, doc! { "m": 1 });
        assert_eq!(marked, doc! { "_id": 7, "pendingMilestones": [{ "m": 1 }] });
    }
}
