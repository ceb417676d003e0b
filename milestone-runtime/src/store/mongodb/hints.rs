//! Hints that something may be due or may have ended, from the server's change stream.

use bson::{Document, doc};
use futures_util::StreamExt as _;

use super::connect::Connection;
use crate::store::{Hints, StoreError};

/// What is worth a look: new milestones, and those whose `next` or `state` is set by a commit or a command. A claim sets both `next` and
/// `lease`; a renewal sets only `next.at`; after neither is there anything new to do. Nor is there after the start of one that is born
/// with a lease.
fn pipeline() -> [Document; 2] {
    let set = |field: &str| doc! { format!("updateDescription.updatedFields.{field}"): { "$exists": true } };
    let not_claimed = doc! { "updateDescription.updatedFields.lease": { "$exists": false } };
    let worth = doc! { "$or": [
        { "operationType": "insert", "fullDocument.lease": { "$exists": false } },
        { "operationType": { "$in": ["update", "replace"] }, "$or": [set("next"), set("state")], "$and": [not_claimed] },
    ] };
    [doc! { "$match": worth }, doc! { "$project": { "_id": 1 } }]
}

/// The hints, or `None` where the server has no change streams.
pub(super) async fn changes(connection: &Connection) -> Result<Option<Hints>, StoreError> {
    if connection.is_standalone() {
        return Ok(None);
    }
    let stream = connection.milestones.watch().pipeline(pipeline()).await;
    let stream = stream
        .map_err(|error| connection.error(error))?
        .with_type::<Document>();
    // It ends at the first error: whoever listens polls, and asks again later.
    let hints = stream
        .take_while(|event| std::future::ready(event.is_ok()))
        .map(|_| ());
    Ok(Some(Box::pin(hints)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_stripped_to_their_resume_token() {
        let [filter, projection] = pipeline();
        assert!(filter.contains_key("$match"));
        assert_eq!(projection, doc! { "$project": { "_id": 1 } });
    }
}
