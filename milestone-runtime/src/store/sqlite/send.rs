//! Commands from outside.

use bson::{Bson, DateTime, Document, doc};
use milestone_core::{
    limits::MAX_INBOX,
    record::{Command, MilestoneId, MilestoneRecord},
};

use super::{
    super::{Sent, StoreError},
    commit::integer,
    errors::Outcome,
    row::{self, Row, Stored},
    session::Session,
};

pub(super) fn send(
    session: &mut Session<'_>,
    id: &MilestoneId,
    command: &Command,
) -> Outcome<Sent> {
    let mut document = match row::read(session.connection, session.database, id)? {
        Stored::Missing => return Ok(Sent::NotFound),
        Stored::Broken(unreadable) => return Err(StoreError::Other(unreadable.to_string()).into()),
        Stored::Document(document) => document,
    };
    if has(&document, "inbox", &command.id) || has(&document, "answers", &command.id) {
        return Ok(Sent::Delivered);
    }
    let record = MilestoneRecord::from_document(document.clone())
        .map_err(|error| StoreError::Other(error.to_string()))?;
    if !command.order.accepted_in().contains(&record.state) {
        return Ok(Sent::Refused(record.state));
    }
    if record.inbox.len() >= MAX_INBOX {
        return Ok(Sent::Full);
    }
    push(&mut document, "inbox", encode(&record, command)?);
    document.insert(
        "mail",
        integer(&document, "mail")
            .unwrap_or_default()
            .saturating_add(1),
    );
    if record
        .lease
        .as_ref()
        .is_none_or(|lease| lease.until <= command.at)
    {
        wake(&mut document, &record, command.at);
    }
    Row::new(id, &document)?.replace(session)?;
    session.hint = true;
    Ok(Sent::Delivered)
}

/// The command as the record's own codec writes it, which leaves the value in it as it is.
fn encode(record: &MilestoneRecord, command: &Command) -> Result<Bson, StoreError> {
    let refused = |reason: &str| StoreError::Refused {
        reason: format!("the command `{}`: {reason}", command.id),
    };
    let carrier = MilestoneRecord {
        inbox: vec![command.clone()],
        ..record.clone()
    };
    let mut document = carrier
        .to_document()
        .map_err(|error| refused(&error.to_string()))?;
    let inbox = document.get_array_mut("inbox").ok().and_then(Vec::pop);
    inbox.ok_or_else(|| refused("it cannot be encoded"))
}

/// Makes it due for any worker that serves it.
fn wake(document: &mut Document, record: &MilestoneRecord, at: DateTime) {
    let queue = record.mail_queue();
    let is_due = record
        .due
        .iter()
        .any(|due| due.method.is_empty() && due.queue == queue && due.at <= at);
    if !is_due {
        push(
            document,
            "due",
            doc! { "queue": queue, "at": at, "method": "" }.into(),
        );
    }
    let at = record.next.as_ref().map_or(at, |next| next.at.min(at));
    document.insert("next", doc! { "queue": queue, "at": at });
}

/// Whether the list has something of that id.
fn has(document: &Document, list: &str, id: &str) -> bool {
    let ids = document
        .get_array(list)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_document()?.get_str("id").ok());
    ids.into_iter().any(|other| other == id)
}

fn push(document: &mut Document, list: &str, item: Bson) {
    match document.get_mut(list) {
        Some(Bson::Array(items)) => items.push(item),
        _ => {
            document.insert(list, vec![item]);
        }
    }
}
