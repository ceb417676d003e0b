//! Marks, and what follows from them. Everything here is pure.

use bson::{Bson, Document, doc, oid::ObjectId};
use milestone_core::record::Status;

use super::{FieldSyncError, id::with};

/// The field of a document that lists its marks.
const SYNCING: &str = "syncing";

/// So that an index name and the id of a milestone have room for it.
const LONGEST_NAME: usize = 64;

/// As many bytes of an `_id` are told in the id of a milestone; the mark alone makes that unique.
const LONGEST_ID: usize = 256;

fn path(name: &str) -> String {
    format!("{SYNCING}.{name}")
}

/// The path of the mark itself.
pub(super) fn mark(name: &str) -> String {
    format!("{SYNCING}.{name}.mark")
}

/// The path of its time.
pub(super) fn at(name: &str) -> String {
    format!("{SYNCING}.{name}.at")
}

/// The name of the action of a fan-out, and of the type of its milestones.
pub(super) fn method(name: &str) -> String {
    format!("sync {name}")
}

/// The id of the milestone of a mark.
pub(super) fn milestone(name: &str, id: &Bson, mark: ObjectId) -> String {
    let mut id = match id {
        Bson::String(id) => id.clone(),
        Bson::ObjectId(id) => id.to_hex(),
        other => other.to_string(),
    };
    id.truncate(id.floor_char_boundary(LONGEST_ID));
    format!("{name}/{id}/{mark}")
}

pub(super) fn check_name(name: &str) -> Result<(), FieldSyncError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.contains(['.', '$', '/', '\0']) {
        "it is the name of a field and part of an id, so it has no `.`, `$`, `/` or NUL in it"
    } else if name.len() > LONGEST_NAME {
        "it is longer than 64 bytes"
    } else {
        return Ok(());
    };
    let name = name.to_owned();
    Err(FieldSyncError::Name { name, reason })
}

/// An update that marks the document in the same write.
pub(super) fn marking(
    name: &str,
    mut update: Document,
    new: ObjectId,
) -> Result<Document, FieldSyncError> {
    let unfit = |reason: String| FieldSyncError::Unfit {
        name: name.to_owned(),
        reason,
    };
    if let Some(key) = update.keys().find(|key| !key.starts_with('$')) {
        let remedy = "write the new values as `$set`";
        return Err(unfit(format!(
            "`{key}` is no update operator, so the document would be replaced together with its marks; {remedy}"
        )));
    }
    let additions = [
        ("$set", mark(name), Bson::ObjectId(new)),
        ("$currentDate", at(name), Bson::Boolean(true)),
    ];
    for (operator, path, value) in additions {
        let fields = update.entry(operator.to_owned());
        let fields = fields.or_insert_with(|| Bson::Document(Document::new()));
        let Bson::Document(fields) = fields else {
            return Err(unfit(format!("its `{operator}` is no document")));
        };
        fields.insert(path, value);
    }
    Ok(update)
}

/// An update that only marks.
pub(super) fn anew(name: &str, new: ObjectId) -> Document {
    doc! { "$set": { mark(name): new }, "$currentDate": { at(name): true } }
}

/// A document that still has that mark.
pub(super) fn still(name: &str, id: &Bson, seen: ObjectId) -> Document {
    with(id, doc! { mark(name): seen })
}

/// The path of the list of fan-outs that copy.
fn list(name: &str) -> String {
    format!("{SYNCING}.{name}.copying")
}

/// A document that still has that mark, and whose fan-out is the only one that copies.
pub(super) fn alone(name: &str, id: &Bson, own: ObjectId) -> Document {
    with(id, doc! { mark(name): own, list(name): [own] })
}

/// A document of which the fan-out of that mark copies.
pub(super) fn copying(name: &str, id: &Bson, own: ObjectId) -> Document {
    with(id, doc! { list(name): own })
}

/// Enters a fan-out in the list.
pub(super) fn joining(name: &str, own: ObjectId) -> Document {
    doc! { "$addToSet": { list(name): own } }
}

/// Takes a fan-out from the list.
pub(super) fn leaving(name: &str, own: ObjectId) -> Document {
    doc! { "$pull": { list(name): own } }
}

/// Removes a mark.
pub(super) fn unmarking(name: &str) -> Document {
    doc! { "$unset": { path(name): 1 } }
}

/// The mark of a document.
pub(super) fn seen(name: &str, document: &Document) -> Option<ObjectId> {
    let marks = document.get_document(SYNCING).ok()?;
    marks.get_document(name).ok()?.get_object_id("mark").ok()
}

/// How a document looks to the fan-out of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It has this mark, and nobody else copies.
    Alone,
    /// It has this mark, and these copy, too.
    Beside(Vec<ObjectId>),
    /// It has another mark or none, or is gone.
    Other,
}

pub(super) fn look(name: &str, document: Option<&Document>, own: ObjectId) -> Seen {
    let Some(document) = document.filter(|document| seen(name, document) == Some(own)) else {
        return Seen::Other;
    };
    let marks = document.get_document(SYNCING);
    let list = marks.and_then(|marks| marks.get_document(name)?.get_array("copying"));
    let others = list.map(Vec::as_slice).unwrap_or_default().iter();
    let others: Vec<_> = others
        .filter_map(Bson::as_object_id)
        .filter(|other| *other != own)
        .collect();
    if others.is_empty() {
        Seen::Alone
    } else {
        Seen::Beside(others)
    }
}

/// What is to be done with a mark that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nobody has started its fan-out.
    Start,
    /// Its fan-out is under way.
    Wait,
    /// Its fan-out is over, and has not removed it: it has failed, or somebody has ended it. A new mark gets a new one.
    MarkAnew,
}

/// By the state of the milestone of the mark, if there is one.
pub(super) fn left(state: Option<Status>) -> Left {
    match state {
        None => Left::Start,
        Some(state) if state.is_terminal() => Left::MarkAnew,
        Some(_) => Left::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_goes_into_the_write_of_the_change() {
        let new = ObjectId::new();
        let update = doc! { "$set": { "name": "Ann B." }, "$inc": { "renamed": 1 } };
        let expected = doc! {
            "$set": { "name": "Ann B.", "syncing.user-name.mark": new },
            "$inc": { "renamed": 1 },
            "$currentDate": { "syncing.user-name.at": true },
        };
        assert_eq!(marking("user-name", update, new).unwrap(), expected);
        let update = doc! { "$currentDate": { "changed": true } };
        let expected = doc! {
            "$currentDate": { "changed": true, "syncing.n.at": true }, "$set": { "syncing.n.mark": new },
        };
        assert_eq!(marking("n", update, new).unwrap(), expected);
    }

    #[test]
    fn a_replacement_would_lose_marks() {
        let error = marking("n", doc! { "name": "Ann" }, ObjectId::new()).unwrap_err();
        assert_eq!(error.code(), "field_sync_unfit");
        assert!(marking("n", doc! { "$set": 7 }, ObjectId::new()).is_err());
    }

    #[test]
    fn the_mark_of_a_document_is_found() {
        let new = ObjectId::new();
        let document = doc! { "syncing": { "n": { "mark": new, "at": 1 }, "m": 7 } };
        assert_eq!(seen("n", &document), Some(new));
        for document in [
            document,
            doc! {},
            doc! { "syncing": 7 },
            doc! { "syncing": {} },
        ] {
            assert_eq!(seen("m", &document), None);
        }
    }

    #[test]
    fn who_else_copies_is_seen() {
        let [own, other] = [ObjectId::new(), ObjectId::new()];
        let marked = |mark: ObjectId, copying: Vec<ObjectId>| doc! { "syncing": { "n": { "mark": mark, "copying": copying } } };
        let look = |document: &Document| look("n", Some(document), own);
        assert_eq!(look(&marked(own, vec![own])), Seen::Alone);
        assert_eq!(
            look(&doc! { "syncing": { "n": { "mark": own } } }),
            Seen::Alone
        );
        assert_eq!(
            look(&marked(own, vec![other, own])),
            Seen::Beside(vec![other])
        );
        assert_eq!(look(&marked(other, vec![own])), Seen::Other);
        assert_eq!(look(&doc! {}), Seen::Other);
        assert_eq!(super::look("n", None, own), Seen::Other);
    }

    #[test]
    fn names_are_fields_and_parts_of_ids() {
        for name in ["", "a.b", "$a", "a/b", "a\0", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name("user name, größer").is_ok());
    }

    #[test]
    fn each_mark_has_a_milestone_of_its_own() {
        let mark = ObjectId::new();
        assert_eq!(
            milestone("n", &Bson::from("ann"), mark),
            format!("n/ann/{mark}")
        );
        assert_eq!(milestone("n", &Bson::from(7), mark), format!("n/7/{mark}"));
        assert_eq!(
            milestone("n", &mark.into(), mark),
            format!("n/{mark}/{mark}")
        );
        let long = milestone(&"n".repeat(64), &Bson::from("ä".repeat(10_000)), mark);
        assert!(
            long.len() <= 512 && long.ends_with(&mark.to_hex()),
            "{long}"
        );
    }

    #[test]
    fn what_was_left_is_started_once_and_what_has_failed_is_marked_anew() {
        assert_eq!(left(None), Left::Start);
        for state in [
            Status::Pending,
            Status::Running,
            Status::Waiting,
            Status::InDoubt,
        ] {
            assert_eq!(left(Some(state)), Left::Wait);
        }
        for state in [
            Status::Completed,
            Status::Failed,
            Status::Undone,
            Status::Cancelled,
        ] {
            assert_eq!(left(Some(state)), Left::MarkAnew);
        }
    }
}
