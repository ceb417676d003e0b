//! Storing new milestones.

use std::{collections::HashMap, sync::Arc};

use bson::{Bson, RawDocumentBuf, Timestamp};
use milestone_core::record::{MilestoneId, MilestoneRecord};
use mongodb::error::{Error, ErrorKind, IndexedWriteError, InsertManyError};

use super::{
    connect::Connection,
    errors, nesting,
    read::{self, Concern},
    update::MAX_DOCUMENT,
};
use crate::store::{Insertion, StoreError};

/// How often one is stored again that was refused as a duplicate of one that is gone when it is read.
const ROUNDS: usize = 3;

/// The document of a new milestone; an error if no server would take it, so that it cannot spoil the command in which others are.
pub(super) fn encode(record: &MilestoneRecord) -> Result<RawDocumentBuf, String> {
    if nesting::is_record_too_deep(record) {
        return Err(nesting::TOO_DEEP.to_owned());
    }
    // MongoDB does so at the top of a document only, and there they are the one value of users.
    if is_empty_timestamp(&record.parameters) {
        return Err(
            "`parameters` is an empty timestamp, in whose place MongoDB would put the present time"
                .to_owned(),
        );
    }
    let document = record.to_vec().map_err(|error| error.to_string())?;
    let document = RawDocumentBuf::from_bytes(document).map_err(|error| error.to_string())?;
    match document.as_bytes().len() {
        size if size > MAX_DOCUMENT => Err(format!(
            "a document of {size} bytes is more than {MAX_DOCUMENT}"
        )),
        _ => Ok(document),
    }
}

fn is_empty_timestamp(value: &Bson) -> bool {
    matches!(
        value,
        Bson::Timestamp(Timestamp {
            time: 0,
            increment: 0
        })
    )
}

fn refused(reason: impl Into<String>) -> Insertion {
    Insertion::Refused(Arc::new(StoreError::Refused {
        reason: reason.into(),
    }))
}

/// A milestone that is not stored yet, and its place in the batch.
struct Pending {
    index: usize,
    id: MilestoneId,
    document: RawDocumentBuf,
}

/// Stores milestones; one that cannot be stored does not hinder the others.
pub(super) async fn insert(
    connection: &Connection,
    batch: &[Arc<MilestoneRecord>],
) -> Result<Vec<Insertion>, StoreError> {
    let mut outcomes: Vec<Option<Insertion>> = Vec::with_capacity(batch.len());
    let mut pending = Vec::with_capacity(batch.len());
    for (index, record) in batch.iter().enumerate() {
        outcomes.push(match encode(record) {
            Ok(document) => {
                pending.push(Pending {
                    index,
                    id: record.id.clone(),
                    document,
                });
                None
            }
            Err(reason) => Some(refused(reason)),
        });
    }
    let mut last_reasons = HashMap::new();
    for _ in 0..ROUNDS {
        if pending.is_empty() {
            break;
        }
        let mut duplicates = Vec::new();
        for (item, fate) in store(connection, pending)
            .await
            .map_err(|error| connection.error(error))?
        {
            match fate {
                Fate::Stored => outcomes[item.index] = Some(Insertion::Inserted),
                Fate::Refused(reason) => outcomes[item.index] = Some(refused(reason)),
                Fate::Duplicate(reason) => {
                    last_reasons.insert(item.index, reason);
                    duplicates.push(item);
                }
            }
        }
        pending = existing(connection, duplicates, &mut outcomes).await?;
    }
    // Whatever the duplicate is of, it is not of the `_id`: another unique index stands in the way.
    let outcome = |(index, outcome): (usize, Option<Insertion>)| {
        outcome.unwrap_or_else(|| refused(last_reasons.remove(&index).unwrap_or_default()))
    };
    Ok(outcomes.into_iter().enumerate().map(outcome).collect())
}

/// Reads those that exist, and gives back the others.
async fn existing(
    connection: &Connection,
    duplicates: Vec<Pending>,
    outcomes: &mut [Option<Insertion>],
) -> Result<Vec<Pending>, StoreError> {
    if duplicates.is_empty() {
        return Ok(duplicates);
    }
    let ids: Vec<_> = duplicates.iter().map(|item| item.id.clone()).collect();
    let documents = read::documents(connection, &ids, None, Concern::Settled).await;
    let documents = documents.map_err(|error| connection.error(error))?;
    let by_id: HashMap<_, _> = documents
        .iter()
        .filter_map(|document| Some((read::id(document)?, document)))
        .collect();
    let mut gone = Vec::new();
    for item in duplicates {
        match by_id.get(&item.id) {
            Some(document) => {
                outcomes[item.index] = Some(Insertion::Exists(read::record(document)));
            }
            None => gone.push(item),
        }
    }
    Ok(gone)
}

/// What became of one document.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Stored,
    Duplicate(String),
    Refused(String),
}

/// The fates of a batch that failed in part. None if it is not known, or could go well later.
fn fates(error: &InsertManyError, documents: usize) -> Option<Vec<Fate>> {
    if error.write_concern_error.is_some() {
        return None;
    }
    let mut fates: Vec<_> = (0..documents).map(|_| Fate::Stored).collect();
    for IndexedWriteError {
        index,
        code,
        message,
        ..
    } in error.write_errors.iter().flatten()
    {
        *fates.get_mut(*index)? = match *code {
            code if errors::is_duplicate(code) => Fate::Duplicate(message.clone()),
            code if errors::is_for_good(code) => Fate::Refused(format!("{message} (code {code})")),
            _ => return None,
        };
    }
    Some(fates)
}

/// Whether a command failed as a whole for what is in it, and how that is told of its document.
fn whole(error: &Error) -> Option<fn(String) -> Fate> {
    match errors::command_code(error)? {
        code if errors::is_duplicate(code) => Some(Fate::Duplicate),
        code if errors::is_of_content(code) => Some(Fate::Refused),
        _ => None,
    }
}

/// Stores documents in one call, and says what became of each. An error means that it is not known.
async fn store(
    connection: &Connection,
    items: Vec<Pending>,
) -> Result<Vec<(Pending, Fate)>, Error> {
    let mut settled = Vec::with_capacity(items.len());
    // A command that is refused for what is in it is divided until the guilty one is alone.
    let mut work = vec![items];
    while let Some(mut part) = work.pop() {
        let documents = part.iter().map(|item| &item.document);
        let fates = match connection
            .milestones
            .insert_many(documents)
            .ordered(false)
            .await
        {
            Ok(_) => part.iter().map(|_| Fate::Stored).collect(),
            Err(error) => match (&*error.kind, whole(&error)) {
                (ErrorKind::InsertMany(partial), _) => match fates(partial, part.len()) {
                    Some(fates) => fates,
                    None => return Err(error),
                },
                (_, Some(fate)) if part.len() == 1 => vec![fate(errors::reason(&error))],
                (_, Some(_)) => {
                    work.push(part.split_off(part.len() / 2));
                    work.push(part);
                    continue;
                }
                (_, None) => return Err(error),
            },
        };
        settled.extend(part.into_iter().zip(fates));
    }
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    fn failed(error: Document) -> InsertManyError {
        bson::deserialize_from_document(error).unwrap()
    }

    #[test]
    fn each_document_has_its_own_fate() {
        let error = failed(doc! { "writeErrors": [
            { "index": 1, "code": 11000, "errmsg": "E11000" }, { "index": 2, "code": 10334, "errmsg": "too large" },
        ] });
        let expected = vec![
            Fate::Stored,
            Fate::Duplicate("E11000".to_owned()),
            Fate::Refused("too large (code 10334)".to_owned()),
            Fate::Stored,
        ];
        assert_eq!(fates(&error, 4), Some(expected));
    }

    #[test]
    fn f20_a_duplicate_key_is_recognised_in_every_shape() {
        let write: mongodb::error::WriteError =
            bson::deserialize_from_document(doc! { "code": 11000, "errmsg": "E11000" }).unwrap();
        let command: mongodb::error::CommandError = bson::deserialize_from_document(
            doc! { "code": 11001, "codeName": "DuplicateKey", "errmsg": "E11001" },
        )
        .unwrap();
        let shapes = [
            ErrorKind::Write(mongodb::error::WriteFailure::WriteError(write)),
            ErrorKind::Command(command),
        ];
        for shape in shapes {
            let fate = whole(&Error::from(shape.clone())).expect("it is about the document");
            assert!(matches!(fate(String::new()), Fate::Duplicate(_)), "{shape}");
        }
        // In a command with many documents, those beside it are stored.
        let many =
            failed(doc! { "writeErrors": [{ "index": 0, "code": 12582, "errmsg": "E12582" }] });
        let fates = fates(&many, 2).expect("each has one");
        assert!(matches!(fates[..], [Fate::Duplicate(_), Fate::Stored]));
    }

    #[test]
    fn what_could_go_well_later_is_unknown() {
        assert_eq!(
            fates(
                &failed(
                    doc! { "writeErrors": [{ "index": 0, "code": 112, "errmsg": "conflict" }] }
                ),
                1
            ),
            None
        );
        assert_eq!(
            fates(
                &failed(doc! { "writeConcernError": { "code": 64, "errmsg": "no majority" } }),
                1
            ),
            None
        );
    }
}
