//! Putting a command into the inbox of a milestone.

use bson::{Bson, Document, doc};
use milestone_core::{
    limits::MAX_INBOX,
    record::{Command, MilestoneId, MilestoneRecord, Order, Status},
};
use mongodb::error::{ErrorKind, WriteFailure};

use super::{connect::Connection, errors, nesting, read};
use crate::store::{Sent, StoreError};

/// How often it is tried again when the milestone changes hands in between.
const TRIES: usize = 32;

/// What is to be done with a command, given the milestone as it is.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nothing: that is what became of it.
    Over(Sent),
    /// This write; if it matches nothing, the milestone has changed in between.
    Write { filter: Document, update: Document },
}

fn step(record: &MilestoneRecord, command: &Command, encoded: &Document) -> Step {
    let known = record.inbox.iter().any(|other| other.id == command.id)
        || record.answers.iter().any(|answer| answer.id == command.id);
    if known {
        return Step::Over(Sent::Delivered);
    }
    let accepted = command.order.accepted_in();
    if !accepted.contains(&record.state) {
        return Step::Over(Sent::Refused(record.state));
    }
    if record.inbox.len() >= MAX_INBOX {
        return Step::Over(Sent::Full);
    }
    let accepted: Vec<&str> = accepted
        .iter()
        .map(|state: &Status| state.as_str())
        .collect();
    let mut filter = doc! {
        "_id": Bson::from(record.id.clone()),
        "state": { "$in": accepted },
        "inbox.id": { "$ne": &command.id },
        "answers.id": { "$ne": &command.id },
        format!("inbox.{}", MAX_INBOX - 1): { "$exists": false },
    };
    let mut push = doc! { "inbox": { "$each": [encoded] } };
    let mut update = doc! { "$inc": { "mail": 1_i64 } };
    if record.lease.is_some() {
        filter.insert("lease", doc! { "$ne": Bson::Null });
    } else {
        // Nobody holds it, so nobody would look into the inbox: it becomes due, on hold or failed too. The queue is the one that was
        // seen, as otherwise `next` would not be that of a due entry.
        let queue = record.mail_queue();
        filter.insert("lease", Bson::Null);
        filter.insert(
            "next.queue",
            record.next.as_ref().map(|next| next.queue.as_str()),
        );
        push.insert(
            "due",
            doc! { "$each": [doc! { "queue": queue, "at": command.at, "method": "" }] },
        );
        update.insert(
            "$set",
            doc! { "next": { "queue": queue, "at": command.at } },
        );
    }
    update.insert("$push", push);
    Step::Write { filter, update }
}

/// The command as it is stored. The value in it goes past serde, which would take `{ "$date": .. }` and its like for extended JSON.
fn encode(command: &Command) -> Result<Document, StoreError> {
    let refused = |reason: String| StoreError::Refused { reason };
    let mut command = command.clone();
    let value = match &mut command.order {
        Order::Resolve { output, .. } => Some(std::mem::replace(output, Bson::Null)),
        _ => None,
    };
    let mut encoded =
        bson::serialize_to_document(&command).map_err(|error| refused(error.to_string()))?;
    if let Some(value) = value {
        let order = encoded
            .get_document_mut("order")
            .and_then(|order| order.get_document_mut("resolve"));
        order
            .map_err(|error| refused(error.to_string()))?
            .insert("output", value);
    }
    if nesting::is_too_deep(&encoded, nesting::OF_COMMANDS) {
        return Err(refused(nesting::TOO_DEEP.to_owned()));
    }
    Ok(encoded)
}

/// Puts a command into the inbox, once.
pub(super) async fn send(
    connection: &Connection,
    id: &MilestoneId,
    command: &Command,
) -> Result<Sent, StoreError> {
    let encoded = encode(command)?;
    for _ in 0..TRIES {
        let documents = read::documents(
            connection,
            std::slice::from_ref(id),
            None,
            read::Concern::Local,
        )
        .await;
        let documents = documents.map_err(|error| connection.error(error))?;
        let Some(document) = documents.first() else {
            return Ok(Sent::NotFound);
        };
        let record = read::record(document)
            .map_err(|unreadable| StoreError::Other(unreadable.to_string()))?;
        match step(&record, command, &encoded) {
            Step::Over(sent) => return Ok(sent),
            Step::Write { filter, update } => {
                if write(connection, filter, update).await? {
                    return Ok(Sent::Delivered);
                }
            }
        }
    }
    Err(StoreError::Other(format!(
        "the milestone {id} changes hands all the time; the command `{}` was not delivered",
        command.id
    )))
}

/// Whether the milestone was still as it was seen.
async fn write(
    connection: &Connection,
    filter: Document,
    update: Document,
) -> Result<bool, StoreError> {
    match connection.milestones.update_one(filter, update).await {
        Ok(written) => Ok(written.matched_count > 0),
        Err(error) => Err(match &*error.kind {
            ErrorKind::Write(WriteFailure::WriteError(refusal))
                if errors::is_for_good(refusal.code) =>
            {
                StoreError::Refused {
                    reason: format!("{} (code {})", refusal.message, refusal.code),
                }
            }
            _ => connection.error(error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use milestone_core::record::{Lease, Next};

    use super::*;

    fn command() -> Command {
        let order = Order::Pause {
            reason: "r".to_owned(),
        };
        Command {
            id: "c".to_owned(),
            order,
            by: "ann".to_owned(),
            at: DateTime::from_millis(9),
        }
    }

    fn record() -> MilestoneRecord {
        let now = DateTime::from_millis(1);
        MilestoneRecord::from_document(doc! {
            "_id": "a", "type": "T", "schema": 1, "parameters": null, "state": "running", "createdAt": now, "epoch": 1_i64, "rev": 1_i64,
            "actions": [{
                "name": "debit", "kind": "action", "method": "debit", "mode": "idempotent", "after": [], "queue": "slow",
                "state": "ready", "attempts": 0_i64,
            }],
        })
        .unwrap()
    }

    fn write(record: &MilestoneRecord) -> (Document, Document) {
        match step(record, &command(), &doc! { "id": "c" }) {
            Step::Write { filter, update } => (filter, update),
            Step::Over(sent) => panic!("{sent:?}"),
        }
    }

    fn over(record: &MilestoneRecord) -> Sent {
        match step(record, &command(), &doc! { "id": "c" }) {
            Step::Over(sent) => sent,
            Step::Write { filter, .. } => panic!("{filter}"),
        }
    }

    #[test]
    fn to_a_held_milestone_only_the_inbox_is_written() {
        let mut held = record();
        let (owner, token) = ("w".to_owned(), "t".to_owned());
        held.lease = Some(Lease {
            owner,
            token,
            since: DateTime::from_millis(1),
            until: DateTime::from_millis(2),
        });
        let (filter, update) = write(&held);
        let expected = doc! {
            "_id": "a", "state": { "$in": ["pending", "running", "waiting", "in_doubt", "undoing"] },
            "inbox.id": { "$ne": "c" }, "answers.id": { "$ne": "c" }, "inbox.255": { "$exists": false }, "lease": { "$ne": null },
        };
        assert_eq!(filter, expected);
        assert_eq!(
            update,
            doc! { "$inc": { "mail": 1_i64 }, "$push": { "inbox": { "$each": [{ "id": "c" }] } } }
        );
    }

    #[test]
    fn a_milestone_that_nobody_holds_becomes_due() {
        let now = DateTime::from_millis(9);
        let expected = |queue: &str| {
            let due = doc! { "queue": queue, "at": now, "method": "" };
            doc! {
                "$inc": { "mail": 1_i64 }, "$set": { "next": { "queue": queue, "at": now } },
                "$push": { "inbox": { "$each": [{ "id": "c" }] }, "due": { "$each": [due] } },
            }
        };
        let on_hold = record();
        let (filter, update) = write(&on_hold);
        assert_eq!(
            (filter.get("lease"), filter.get("next.queue")),
            (Some(&Bson::Null), Some(&Bson::Null))
        );
        assert_eq!(update, expected("slow"));
        let mut waiting = record();
        waiting.next = Some(Next {
            queue: "q".to_owned(),
            at: DateTime::from_millis(50),
        });
        let (filter, update) = write(&waiting);
        assert_eq!(filter.get("next.queue"), Some(&Bson::from("q")));
        assert_eq!(update, expected("q"));
    }

    #[test]
    fn what_is_there_is_not_sent_again_and_what_cannot_be_is_refused() {
        let mut delivered = record();
        delivered.inbox.push(command());
        assert_eq!(over(&delivered), Sent::Delivered);
        let mut over_and_done = record();
        over_and_done.state = Status::Completed;
        assert_eq!(over(&over_and_done), Sent::Refused(Status::Completed));
        let mut full = record();
        full.inbox = vec![
            Command {
                id: "other".to_owned(),
                ..command()
            };
            MAX_INBOX
        ];
        assert_eq!(over(&full), Sent::Full);
        full.inbox.push(command());
        assert_eq!(over(&full), Sent::Delivered);
    }

    #[test]
    fn a_value_in_a_command_is_stored_as_it_is() {
        let value = doc! { "$date": 1, "a.b": { "$oid": "x" } };
        let order = Order::Resolve {
            action: "debit".to_owned(),
            attempt: None,
            applied: true,
            output: value.clone().into(),
        };
        let expected = doc! {
            "id": "c", "by": "ann", "at": DateTime::from_millis(9),
            "order": { "resolve": { "action": "debit", "applied": true, "output": value } },
        };
        let encoded = encode(&Command { order, ..command() }).unwrap();
        assert_eq!(
            bson::RawDocumentBuf::try_from(&encoded)
                .unwrap()
                .as_bytes()
                .len(),
            bson::RawDocumentBuf::try_from(&expected)
                .unwrap()
                .as_bytes()
                .len()
        );
        assert_eq!(encoded.get("order"), expected.get("order"));
    }
}
