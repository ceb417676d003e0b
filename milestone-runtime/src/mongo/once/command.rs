//! The commands of `once`, put together. Pure.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use milestone_core::record::MilestoneId;
use mongodb::options::UpdateModifications;

use super::fence::Fence;
use crate::mongo::trace::{MARKERS, Marker};

/// The stages of a pipeline that leave alone what they do not name.
const STAGES: [&str; 3] = ["$set", "$addFields", "$unset"];

/// The `_id` that a filter names.
pub(super) fn plain_id(filter: &Document) -> Result<Bson, &'static str> {
    if filter
        .get("$and")
        .is_some_and(|and| and.as_array().is_none())
    {
        return Err("its `$and` is no array");
    }
    match filter.get("_id") {
        None => Err(
            "it has no `_id`: a write that is applied once is for one document, so find its `_id` first, and put it beside the other conditions",
        ),
        Some(Bson::Document(id)) if id.keys().any(|key| key.starts_with('$')) => {
            Err("its `_id` is an operator: a write that is applied once is for one document")
        }
        Some(Bson::RegularExpression(_)) => Err(
            "its `_id` is a regular expression: a write that is applied once is for one document",
        ),
        Some(id) => Ok(id.clone()),
    }
}

/// Why an update cannot be applied once, if it cannot.
pub(super) fn check_update(update: &UpdateModifications) -> Result<(), String> {
    match update {
        UpdateModifications::Document(update) => check_operators(update),
        UpdateModifications::Pipeline(stages) => stages.iter().try_for_each(check_stage),
        _ => Err("it is neither a document nor a pipeline".to_owned()),
    }
}

fn check_operators(update: &Document) -> Result<(), String> {
    for (operator, fields) in update {
        if !operator.starts_with('$') {
            return Err(format!(
                "`{operator}` is no operator: a replacement would take the markers of other milestones away, so name the fields with `$set`"
            ));
        }
        let Bson::Document(fields) = fields else {
            return Err(format!("`{operator}` has no fields"));
        };
        let renamed = fields.values().filter_map(Bson::as_str);
        let renamed = renamed.filter(|_| operator == "$rename");
        if fields
            .keys()
            .map(String::as_str)
            .chain(renamed)
            .any(is_ours)
        {
            return Err(ours());
        }
    }
    Ok(())
}

fn check_stage(stage: &Document) -> Result<(), String> {
    for (name, fields) in stage {
        if !STAGES.contains(&&**name) {
            return Err(format!(
                "the stage `{name}` may take the markers of other milestones away: use `$set`, `$addFields` and `$unset`"
            ));
        }
        let names = match fields {
            Bson::Document(fields) => fields.keys().map(String::as_str).collect(),
            Bson::Array(fields) => fields.iter().filter_map(Bson::as_str).collect(),
            other => Vec::from_iter(other.as_str()),
        };
        if names.into_iter().any(is_ours) {
            return Err(ours());
        }
    }
    Ok(())
}

fn is_ours(path: &str) -> bool {
    path.split('.').next() == Some(MARKERS)
}

fn ours() -> String {
    format!("it changes `{MARKERS}`, which milestone keeps")
}

/// The update with markers added.
pub(super) fn with_markers(update: UpdateModifications, markers: &[Document]) -> Bson {
    let markers = markers
        .iter()
        .cloned()
        .map(Bson::Document)
        .collect::<Vec<_>>();
    match update {
        UpdateModifications::Pipeline(mut stages) => {
            let markers: Vec<Bson> = markers
                .into_iter()
                .map(|marker| doc! { "$literal": marker }.into())
                .collect();
            let there = doc! { "$ifNull": [format!("${MARKERS}"), []] };
            stages.push(doc! { "$set": { MARKERS: { "$concatArrays": [there, markers] } } });
            stages.into()
        }
        UpdateModifications::Document(mut update) => {
            let each = doc! { "$each": markers };
            match update.get_document_mut("$push") {
                Ok(push) => {
                    push.insert(MARKERS, each);
                }
                Err(_) => {
                    update.insert("$push", doc! { MARKERS: each });
                }
            }
            update.into()
        }
        // It was checked.
        _ => Bson::Null,
    }
}

/// A filter with more conditions.
pub(super) fn with(filter: &Document, conditions: impl IntoIterator<Item = Document>) -> Document {
    let mut filter = filter.clone();
    let conditions = conditions.into_iter().map(Bson::Document);
    match filter.get_array_mut("$and") {
        Ok(and) => and.extend(conditions),
        Err(_) => {
            filter.insert("$and", conditions.collect::<Vec<_>>());
        }
    }
    filter
}

/// The document has the marker.
pub(super) fn has(marker: &Marker) -> Document {
    doc! { MARKERS: { "$elemMatch": marker.key() } }
}

/// The document does not have the marker.
pub(super) fn lacks(marker: &Marker) -> Document {
    doc! { MARKERS: { "$not": { "$elemMatch": marker.key() } } }
}

/// The document has fewer markers.
pub(super) fn has_room(limit: usize) -> Document {
    doc! { format!("{MARKERS}.{}", limit - 1): { "$exists": false } }
}

/// The server's time is not too late.
pub(super) fn in_time(fence: &Fence) -> Document {
    doc! { "$expr": { "$lt": ["$$NOW", fence.until] } }
}

/// The write of one document.
pub(super) fn update(collection: &str, filter: Document, update: Bson, fence: &Fence) -> Document {
    let statement = doc! { "q": filter, "u": update };
    write(doc! { "update": collection, "updates": [statement] }, fence)
}

/// The insertion of a document that has an `_id`: an update, since an insertion cannot look at the time. No document has the filter's
/// `pendingMilestones`, so one with this `_id` is a duplicate key; and when it is late, there is no new document, which the server refuses.
pub(super) fn insert(collection: &str, document: &Document, fence: &Fence) -> Document {
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    let in_time = doc! { "$lt": ["$$NOW", fence.until] };
    let document = doc! { "$literal": document };
    let new = doc! { "$replaceWith": { "$cond": [in_time, document, "$__late"] } };
    let statement = doc! { "q": { "_id": id, MARKERS: "never" }, "u": [new], "upsert": true };
    write(doc! { "update": collection, "updates": [statement] }, fence)
}

/// The deletion of one document.
pub(super) fn delete(collection: &str, filter: Document, fence: &Fence) -> Document {
    let statement = doc! { "q": filter, "limit": 1 };
    write(doc! { "delete": collection, "deletes": [statement] }, fence)
}

fn write(mut command: Document, fence: &Fence) -> Document {
    let patience = millis(fence.patience);
    command.insert(
        "writeConcern",
        doc! { "w": "majority", "j": true, "wtimeout": patience },
    );
    command.insert("maxTimeMS", millis(fence.max_time));
    command
}

/// Reads the markers of one document, as nobody can take them back any more.
pub(super) fn find(
    collection: &str,
    filter: &Document,
    level: &str,
    max_time: Duration,
) -> Document {
    doc! {
        "find": collection,
        "filter": filter,
        "projection": { MARKERS: 1 },
        "limit": 1,
        "singleBatch": true,
        "readConcern": { "level": level },
        "maxTimeMS": millis(max_time),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis())
        .unwrap_or(i64::MAX)
        .max(1)
}

/// The `_id` of a document that has none: the same for every attempt. Its first half is the time at which the milestone was started, as
/// an `ObjectId`'s is.
pub(super) fn made_id(
    milestone: &MilestoneId,
    started: DateTime,
    action: &str,
    label: &str,
) -> ObjectId {
    let seconds = u32::try_from(started.timestamp_millis() / 1000).unwrap_or(u32::MAX);
    let key = format!(
        "{milestone:?}\n{}\n{}:{action}\n{label}",
        started.timestamp_millis(),
        action.len()
    );
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    bytes[4..].copy_from_slice(&hash(key.as_bytes()).to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// FNV-1a, whose bits are then mixed: it must be the same in all versions, which the standard library's is not.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence() -> Fence {
        Fence {
            until: DateTime::from_millis(9_000),
            max_time: Duration::from_secs(2),
            patience: Duration::from_secs(10),
        }
    }

    fn marker() -> Marker {
        Marker {
            milestone: "t-1".into(),
            started: DateTime::from_millis(3),
            action: "debit".to_owned(),
            label: String::new(),
            undone: false,
        }
    }

    #[test]
    fn a_filter_names_one_document() {
        assert_eq!(
            plain_id(&doc! { "_id": 7, "open": true }),
            Ok(Bson::Int32(7))
        );
        let embedded = doc! { "region": "eu", "number": 7 };
        assert_eq!(plain_id(&doc! { "_id": &embedded }), Ok(embedded.into()));
        let [pattern, options] = ["a", ""].map(|text| bson::raw::CString::try_from(text).unwrap());
        let regex = bson::Regex { pattern, options };
        for filter in [
            doc! { "name": "ann" },
            doc! { "_id": { "$in": [1, 2] } },
            doc! { "_id": regex },
            doc! { "_id": 7, "$and": { "a": 1 } },
        ] {
            assert!(plain_id(&filter).is_err(), "{filter}");
        }
    }

    #[test]
    fn an_update_leaves_the_markers_alone() {
        let good: [UpdateModifications; 3] = [
            doc! { "$inc": { "balance": -5 }, "$push": { "log": "x" } }.into(),
            vec![
                doc! { "$set": { "balance": { "$add": ["$balance", 5] } } },
                doc! { "$unset": ["old"] },
            ]
            .into(),
            doc! { "$set": { "pendingMilestonesOfMine": 1 } }.into(),
        ];
        for update in &good {
            assert_eq!(check_update(update), Ok(()), "{update:?}");
        }
        let bad: [UpdateModifications; 8] = [
            doc! { "$push": 5 }.into(),
            doc! { "balance": 5 }.into(),
            doc! { "$set": { "pendingMilestones": [] } }.into(),
            doc! { "$set": { "pendingMilestones.0.label": "x" } }.into(),
            doc! { "$rename": { "old": "pendingMilestones" } }.into(),
            vec![doc! { "$replaceWith": { "a": 1 } }].into(),
            vec![doc! { "$set": { "pendingMilestones": [] } }].into(),
            vec![doc! { "$unset": "pendingMilestones" }].into(),
        ];
        for update in &bad {
            assert!(check_update(update).is_err(), "{update:?}");
        }
    }

    #[test]
    fn markers_are_added_to_what_an_update_does() {
        let marker = doc! { "m": 1 };
        let update = doc! { "$inc": { "balance": -5 }, "$push": { "log": "x" } };
        let each = doc! { "$each": [&marker] };
        let expected =
            doc! { "$inc": { "balance": -5 }, "$push": { "log": "x", "pendingMilestones": &each } };
        assert_eq!(
            with_markers(update.into(), std::slice::from_ref(&marker)),
            expected.into()
        );
        let expected = doc! { "$inc": { "balance": -5 }, "$push": { "pendingMilestones": each } };
        let update = doc! { "$inc": { "balance": -5 } };
        assert_eq!(
            with_markers(update.into(), std::slice::from_ref(&marker)),
            expected.into()
        );
        let stage = doc! { "$set": { "balance": 5 } };
        let there = doc! { "$ifNull": ["$pendingMilestones", []] };
        let last = doc! { "$set": { "pendingMilestones": { "$concatArrays": [there, [{ "$literal": &marker }]] } } };
        let expected = Bson::from(vec![stage.clone(), last]);
        assert_eq!(with_markers(vec![stage].into(), &[marker]), expected);
    }

    #[test]
    fn conditions_leave_those_of_the_filter_alone() {
        let filter = with(
            &doc! { "_id": 7, "$expr": { "$gt": ["$a", "$b"] } },
            [in_time(&fence()), has_room(500)],
        );
        let expected = doc! {
            "_id": 7,
            "$expr": { "$gt": ["$a", "$b"] },
            "$and": [{ "$expr": { "$lt": ["$$NOW", DateTime::from_millis(9_000)] } }, { "pendingMilestones.499": { "$exists": false } }],
        };
        assert_eq!(filter, expected);
        let filter = with(
            &doc! { "_id": 7, "$and": [{ "open": true }] },
            [lacks(&marker())],
        );
        let lacks = doc! { "pendingMilestones": { "$not": { "$elemMatch": marker().key() } } };
        assert_eq!(filter, doc! { "_id": 7, "$and": [{ "open": true }, lacks] });
    }

    #[test]
    fn a_write_waits_for_the_majority_and_not_for_ever() {
        let command = update(
            "accounts",
            doc! { "_id": 7 },
            doc! { "$inc": { "a": 1 } }.into(),
            &fence(),
        );
        let expected = doc! {
            "update": "accounts",
            "updates": [{ "q": { "_id": 7 }, "u": { "$inc": { "a": 1 } } }],
            "writeConcern": { "w": "majority", "j": true, "wtimeout": 10_000_i64 },
            "maxTimeMS": 2_000_i64,
        };
        assert_eq!(command, expected);
    }

    #[test]
    fn what_is_inserted_is_taken_literally() {
        let document = doc! { "_id": 7, "price": "$5" };
        let command = insert("orders", &document, &fence());
        let statement = command.get_array("updates").unwrap()[0]
            .as_document()
            .unwrap();
        assert_eq!(
            statement.get_document("q").unwrap(),
            &doc! { "_id": 7, "pendingMilestones": "never" }
        );
        assert!(statement.get_bool("upsert").unwrap());
        let now = doc! { "$lt": ["$$NOW", DateTime::from_millis(9_000)] };
        let expected =
            doc! { "$replaceWith": { "$cond": [now, { "$literal": document }, "$__late"] } };
        assert_eq!(statement.get_array("u").unwrap(), &[expected.into()]);
    }

    #[test]
    fn an_id_is_the_same_for_the_same_and_another_for_another() {
        let at = DateTime::from_millis(1_700_000_000_123);
        let id = made_id(&"t-1".into(), at, "insert", "");
        assert_eq!(id, made_id(&"t-1".into(), at, "insert", ""));
        assert_eq!(id.timestamp(), DateTime::from_millis(1_700_000_000_000));
        assert_eq!(id.to_string(), "6553f100795963a088a8bcc9");
        let later = DateTime::from_millis(1_700_000_000_124);
        for other in [
            made_id(&"t-2".into(), at, "insert", ""),
            made_id(&"t-1".into(), later, "insert", ""),
            made_id(&"t-1".into(), at, "inser", "t"),
            made_id(&"t-1".into(), at, "insert", "a"),
        ] {
            assert_ne!(id, other);
        }
    }
}
