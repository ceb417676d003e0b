//! What the replies of the server mean. Pure.

use bson::{Bson, Document};
use mongodb::error::{Error, ErrorKind};

use super::error::{OnceError, Target};
use crate::{
    mongo::trace::{MARKERS, Marker},
    store::mongodb::errors,
};

/// What became of a write.
#[derive(Debug)]
pub(super) enum Reply {
    /// It is applied.
    Applied,
    /// Nothing matched.
    Missed,
    /// It is an insertion, and came too late.
    Late,
    /// Another document has the key.
    Exists {
        /// Whether the key is the `_id`; else a unique index of the application's.
        by_id: bool,
        reason: String,
    },
    /// The server does not take it.
    Refused(OnceError),
    /// Nobody knows, or it could not be done now: to be sent again.
    Unsettled(OnceError),
}

/// The server says that the new document of an update is none.
const NO_DOCUMENT: i32 = 40228;

/// The document would not pass the validator.
const INVALID: i32 = 121;

/// Codes of updates that no document would take.
const MALFORMED: [i32; 8] = [9, 40, 52, 54, 55, 56, 57, 66];

/// Judges a reply to a write of one document.
pub(super) fn judge(target: &Target, reply: Result<Document, Error>) -> Reply {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return failed(target, &error),
    };
    if let Ok([Bson::Document(error), ..]) = reply.get_array("writeErrors").map(Vec::as_slice) {
        return refused(target, error);
    }
    if let Ok(concern) = reply.get_document("writeConcernError") {
        let reason = concern
            .get_str("errmsg")
            .unwrap_or("the write concern is not fulfilled");
        return Reply::Unsettled(OnceError::Unsettled {
            target: target.clone(),
            reason: reason.to_owned(),
        });
    }
    match integer(&reply, "n") {
        0 => Reply::Missed,
        _ => Reply::Applied,
    }
}

fn refused(target: &Target, error: &Document) -> Reply {
    let code = i32::try_from(integer(error, "code")).unwrap_or(0);
    let reason = error
        .get_str("errmsg")
        .unwrap_or("it does not say why")
        .to_owned();
    match code {
        NO_DOCUMENT => Reply::Late,
        code if errors::is_duplicate(code) => {
            let pattern = error.get_document("keyPattern");
            let by_id = pattern.map_or_else(
                |_| reason.contains("_id_"),
                |pattern| pattern.contains_key("_id"),
            );
            Reply::Exists { by_id, reason }
        }
        code => by_code(target, code, reason),
    }
}

fn by_code(target: &Target, code: i32, reason: String) -> Reply {
    let target = target.clone();
    if code == INVALID {
        return Reply::Refused(OnceError::Validator { target, reason });
    }
    if errors::is_for_good(code) {
        let is_malformed = MALFORMED.contains(&code);
        return Reply::Refused(OnceError::Refused {
            target,
            code,
            reason,
            is_malformed,
        });
    }
    if errors::is_of_rights(code) {
        let is_malformed = false;
        return Reply::Refused(OnceError::Refused {
            target,
            code,
            reason,
            is_malformed,
        });
    }
    Reply::Unsettled(OnceError::Unsettled { target, reason })
}

/// Judges a command that failed as a whole.
pub(super) fn failed(target: &Target, error: &Error) -> Reply {
    let reason = error.kind.to_string();
    match (&*error.kind, errors::command_code(error)) {
        (_, Some(code)) => by_code(target, code, reason),
        (
            ErrorKind::InvalidArgument { .. }
            | ErrorKind::BsonSerialization(_)
            | ErrorKind::Authentication { .. },
            _,
        ) => Reply::Refused(OnceError::Refused {
            target: target.clone(),
            code: 0,
            reason,
            is_malformed: false,
        }),
        _ => Reply::Unsettled(OnceError::Unsettled {
            target: target.clone(),
            reason,
        }),
    }
}

fn integer(document: &Document, key: &str) -> i64 {
    match document.get(key) {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "counts and codes are small"
        )]
        Some(Bson::Double(number)) => *number as i64,
        _ => 0,
    }
}

/// The markers of a document, as they are read after a write that matched nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen(Vec<Document>);

impl Seen {
    /// Reads them from the reply of a find; `None`: there is no such document.
    pub(super) fn read(reply: &Document) -> Option<Self> {
        let batch = reply
            .get_document("cursor")
            .ok()?
            .get_array("firstBatch")
            .ok()?;
        let found = batch.first()?.as_document()?;
        let markers = found.get_array(MARKERS).map(Vec::as_slice);
        let markers = markers.unwrap_or_default().iter();
        Some(Self(
            markers.filter_map(Bson::as_document).cloned().collect(),
        ))
    }

    pub(super) fn marker(&self, marker: &Marker) -> Option<&Document> {
        let mut markers = self.0.iter();
        markers.find(|stored| Marker::read(stored).as_ref() == Some(marker))
    }

    pub(super) fn has(&self, marker: &Marker) -> bool {
        self.marker(marker).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    fn target() -> Target {
        Target::new("bank", "accounts", &Bson::from("ann"))
    }

    fn of(reply: Document) -> Reply {
        judge(&target(), Ok(reply))
    }

    fn write_error(code: i32) -> Document {
        doc! { "n": 0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": code, "errmsg": "no" }] }
    }

    #[test]
    fn a_reply_tells_what_became_of_a_write() {
        assert!(matches!(
            of(doc! { "n": 1, "nModified": 1, "ok": 1.0 }),
            Reply::Applied
        ));
        assert!(matches!(of(doc! { "n": 1.0, "ok": 1.0 }), Reply::Applied));
        assert!(matches!(
            of(doc! { "n": 0, "nModified": 0, "ok": 1.0 }),
            Reply::Missed
        ));
        assert!(matches!(of(write_error(40228)), Reply::Late));
    }

    #[test]
    fn what_a_failover_may_take_back_is_not_settled() {
        let reply = doc! { "n": 1, "ok": 1.0, "writeConcernError": { "code": 64, "errmsg": "waiting timed out" } };
        let Reply::Unsettled(error) = of(reply) else {
            panic!("it is settled");
        };
        assert!(error.to_string().contains("waiting timed out"), "{error}");
        assert!(matches!(of(write_error(112)), Reply::Unsettled(_)));
        // Of a router that has lost the shard: the write may go on there.
        for code in [6, 7, 89, 91] {
            let reply = of(write_error(code));
            assert!(matches!(reply, Reply::Unsettled(_)), "{code}: {reply:?}");
        }
    }

    #[test]
    fn a_duplicate_of_the_id_is_told_from_one_of_another_index() {
        let by_index = |pattern: Document| {
            let error =
                doc! { "index": 0, "code": 11000, "errmsg": "E11000", "keyPattern": pattern };
            match of(doc! { "n": 0, "writeErrors": [error] }) {
                Reply::Exists { by_id, .. } => by_id,
                other => panic!("{other:?}"),
            }
        };
        assert!(by_index(doc! { "_id": 1 }));
        assert!(!by_index(doc! { "email": 1 }));
    }

    #[test]
    fn a_validator_is_told_what_it_must_allow() {
        let Reply::Refused(error) = of(write_error(121)) else {
            panic!("it is taken");
        };
        assert!(error.to_string().contains("pendingMilestones"), "{error}");
    }

    #[test]
    fn an_update_that_no_document_takes_is_fatal() {
        for (code, fatal) in [(9, true), (40, true), (14, false), (2, false), (13, false)] {
            match of(write_error(code)) {
                Reply::Refused(error) => assert_eq!(error.is_fatal(), fatal, "{code}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn markers_are_read() {
        let marker = Marker {
            milestone: "t-1".into(),
            started: DateTime::from_millis(3),
            action: "debit".to_owned(),
            label: String::new(),
            undone: false,
        };
        let batch = |found: Vec<Document>| doc! { "cursor": { "id": 0_i64, "firstBatch": found } };
        assert_eq!(Seen::read(&batch(vec![])), None);
        let none = Seen::read(&batch(vec![doc! { "_id": 7 }])).unwrap();
        assert!(!none.has(&marker) && none.len() == 0);
        let stored = marker.stored(DateTime::from_millis(9));
        let seen = Seen::read(&batch(vec![doc! { "_id": 7, MARKERS: [stored] }])).unwrap();
        assert!(seen.has(&marker) && seen.len() == 1);
        let other = Marker {
            undone: true,
            ..marker
        };
        assert!(!seen.has(&other));
    }
}
