//! Hints that something is due or has ended, from the server's change stream.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::StreamExt as _;
use milestone_core::record::{MilestoneId, Status};

use super::connect::Connection;
use crate::store::{Hint, Hints, StoreError, Wanted};

/// How long the server waits for something to happen before it says that nothing has: an idle stream costs one command in that time.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is worth a look: new milestones, those whose `next` is set by a commit or a command, and those that end. A claim sets both `next`
/// and `lease`; a renewal sets only `next.at`; after neither is there anything new to do. Nor is there after the start of one that is born
/// with a lease.
///
/// The stream is an aggregation like others: the driver's own way opens a stream that has failed again at once and without end.
fn pipeline(wanted: Wanted) -> [Document; 3] {
    let terminal = Status::ALL.into_iter().filter(|state| state.is_terminal());
    let terminal: Vec<&str> = terminal.map(Status::as_str).collect();
    let updated = "updateDescription.updatedFields";
    let mut worth = vec![doc! { "operationType": "replace" }];
    if wanted.due {
        worth.push(doc! { "operationType": "insert", "fullDocument.lease": { "$exists": false } });
        worth.push(doc! {
            "operationType": "update",
            format!("{updated}.next"): { "$exists": true },
            format!("{updated}.lease"): { "$exists": false },
        });
    }
    if wanted.ended {
        worth.push(
            doc! { "operationType": "update", format!("{updated}.state"): { "$in": terminal } },
        );
    }
    // Without the `_id`, the server gives the stream up.
    let needed = doc! {
        "_id": 1,
        "documentKey._id": 1,
        "fullDocument.next.at": 1,
        format!("{updated}.next.at"): 1,
        format!("{updated}.state"): 1,
    };
    [
        doc! { "$changeStream": {} },
        doc! { "$match": { "$or": worth } },
        doc! { "$project": needed },
    ]
}

/// What an event says.
fn hint(event: &Document) -> Hint {
    let part = |name: &str| event.get_document(name).ok();
    let updated =
        part("updateDescription").and_then(|update| update.get_document("updatedFields").ok());
    let ended = updated.is_some_and(|fields| fields.contains_key("state"));
    let id = part("documentKey").and_then(|key| MilestoneId::try_from(key.get("_id")?).ok());
    if let Some(id) = id.filter(|_| ended) {
        return Hint::Ended(id);
    }
    let next = updated.or_else(|| part("fullDocument"));
    match next.and_then(|document| document.get_document("next").ok()?.get("at")) {
        Some(Bson::DateTime(at)) => Hint::Due(*at),
        _ => Hint::Changed,
    }
}

/// The hints, or `None` where the server has no change streams.
pub(super) async fn changes(
    connection: &Connection,
    wanted: Wanted,
) -> Result<Option<Hints>, StoreError> {
    if connection.is_standalone() {
        return Ok(None);
    }
    let stream = connection
        .milestones
        .aggregate(pipeline(wanted))
        .max_await_time(PATIENCE)
        .await
        .map_err(|error| connection.error(error))?;
    // It ends at the first error: whoever listens polls, and asks again later.
    let hints = stream
        .take_while(|event| std::future::ready(event.is_ok()))
        .filter_map(async |event| event.ok().as_ref().map(hint));
    Ok(Some(Box::pin(hints)))
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    #[test]
    fn events_are_stripped_to_what_is_needed() {
        let [stream, filter, projection] = pipeline(Wanted::ALL);
        assert_eq!(stream, doc! { "$changeStream": {} });
        assert!(filter.contains_key("$match"));
        let expected = doc! {
            "_id": 1, "documentKey._id": 1, "fullDocument.next.at": 1,
            "updateDescription.updatedFields.next.at": 1, "updateDescription.updatedFields.state": 1,
        };
        assert_eq!(projection, doc! { "$project": expected });
    }

    #[test]
    fn an_event_says_what_is_due_or_has_ended() {
        let at = DateTime::from_millis(7);
        let key = doc! { "_id": "a" };
        let new = doc! { "_id": {}, "documentKey": key.clone(), "fullDocument": { "next": { "at": at } } };
        assert_eq!(hint(&new), Hint::Due(at));
        let update = |fields: Document| doc! { "documentKey": key.clone(), "updateDescription": { "updatedFields": fields } };
        assert_eq!(hint(&update(doc! { "next": { "at": at } })), Hint::Due(at));
        let ended = update(doc! { "state": "completed" });
        assert_eq!(hint(&ended), Hint::Ended("a".into()));
        assert_eq!(hint(&doc! { "_id": {} }), Hint::Changed);
    }
}
