//! What the calls of a store do to one document, for stores that change documents in their own process.

use std::sync::Arc;

use bson::{Bson, DateTime, Document, doc};
use milestone_core::{
    limits::MAX_INBOX,
    machine,
    patch::Patch,
    record::{Command, Lease, MilestoneRecord, Order},
};

use super::{ClaimRequest, Commit, Committed, Filter, Sent, StoreError};

/// The largest document, in bytes: that of a MongoDB server, so a milestone can be moved from one store to the other.
pub(crate) const MAX_DOCUMENT: usize = 16 << 20;

/// The most levels of a document.
pub(crate) const MAX_LEVELS: usize = 180;

/// The token of the lease, if there is one.
pub(crate) fn token(document: &Document) -> Option<&str> {
    document.get("lease")?.as_document()?.get_str("token").ok()
}

/// A whole number of any width.
pub(crate) fn integer(document: &Document, name: &str) -> Option<i64> {
    match document.get(name)? {
        Bson::Int64(value) => Some(*value),
        Bson::Int32(value) => Some(i64::from(*value)),
        _ => None,
    }
}

/// Gives the lease to a worker, in memory, and tells what that changes.
pub(crate) fn lease(record: &mut MilestoneRecord, request: &ClaimRequest) -> Patch {
    let lease = Lease {
        owner: request.owner.clone(),
        token: request.token.clone(),
        since: request.now,
        until: request.until,
    };
    let patch = machine::claim(record, lease, request.begins.as_ref());
    record.rev += 1;
    patch
}

/// What a stored document says of its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'d> {
    pub(crate) token: Option<&'d str>,
    pub(crate) rev: Option<i64>,
    /// How many commands have come.
    pub(crate) mail: i64,
}

/// What becomes of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is to be applied.
    Apply,
    /// It was done before, by a call whose answer was lost.
    DoneBefore,
    /// The lease is another one's.
    Lost,
    /// It overlooks a command.
    Mail,
}

impl Standing<'_> {
    pub(crate) fn fate_of(&self, commit: &Commit) -> Fate {
        let next = commit.rev.checked_add(1);
        let is_holder = self.token == Some(commit.token.as_str());
        if next.is_some() && self.rev == Some(commit.rev) && is_holder {
            return match commit.patch.mail() {
                Some(mail) if mail != self.mail => Fate::Mail,
                _ => Fate::Apply,
            };
        }
        let has_let_go = self.token.is_none() && commit.patch.releases();
        if self.rev.is_some() && self.rev == next && (is_holder || has_let_go) {
            Fate::DoneBefore
        } else {
            Fate::Lost
        }
    }
}

/// The answer for a patch that overlooks a command: the milestone as it is.
pub(crate) fn mail_of(document: Document) -> Committed {
    MilestoneRecord::from_document(document)
        .map_or(Committed::Lost, |record| Committed::Mail(Box::new(record)))
}

/// Carries out a patch. `Err`: it is not to be stored, and that is why.
#[cfg(feature = "testing")]
pub(crate) fn commit(document: &mut Document, commit: &Commit) -> Result<(), Committed> {
    let standing = Standing {
        token: token(document),
        rev: integer(document, "rev"),
        mail: integer(document, "mail").unwrap_or_default(),
    };
    match standing.fate_of(commit) {
        Fate::Apply => {}
        Fate::DoneBefore => return Err(Committed::Done),
        Fate::Lost => return Err(Committed::Lost),
        Fate::Mail => return Err(mail_of(document.clone())),
    }
    commit
        .patch
        .apply_to(document, commit.rev + 1)
        .map_err(|error| refused(error.to_string()))
}

/// What is not stored, and why.
pub(crate) fn refused(reason: String) -> Committed {
    Committed::Refused(Arc::new(StoreError::Refused { reason }))
}

/// Prolongs the lease, never shortens it, and tells whether that changed anything.
pub(crate) fn renew(document: &mut Document, until: DateTime) -> bool {
    let later = [
        raise(document, "lease", "until", until),
        raise(document, "next", "at", until),
    ];
    later.contains(&true)
}

/// Sets the date in a part of the document, unless a later one is there, and tells whether it did.
fn raise(document: &mut Document, part: &str, name: &str, date: DateTime) -> bool {
    let place = document
        .get_mut(part)
        .and_then(Bson::as_document_mut)
        .and_then(|part| part.get_mut(name));
    match place {
        Some(Bson::DateTime(old)) if *old < date => {
            *old = date;
            true
        }
        _ => false,
    }
}

/// Puts a command into the inbox. `Ok(Err(..))`: the document is as it was, and that is the answer.
pub(crate) fn send(
    document: &mut Document,
    command: &Command,
) -> Result<Result<(), Sent>, StoreError> {
    if has(document, "inbox", &command.id) || has(document, "answers", &command.id) {
        return Ok(Err(Sent::Delivered));
    }
    let record = MilestoneRecord::from_document(document.clone())
        .map_err(|error| StoreError::Other(error.to_string()))?;
    if !command.order.accepted_in().contains(&record.state) {
        return Ok(Err(Sent::Refused(record.state)));
    }
    if record.inbox.len() >= MAX_INBOX {
        return Ok(Err(Sent::Full));
    }
    push(document, "inbox", encode(&record, command)?);
    document.insert(
        "mail",
        integer(document, "mail")
            .unwrap_or_default()
            .saturating_add(1),
    );
    if record
        .lease
        .as_ref()
        .is_none_or(|lease| lease.until <= command.at)
    {
        wake(document, &record, command.at);
    }
    Ok(Ok(()))
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

/// Whether what is due in that queue by that method is for the worker.
pub(crate) fn is_served(queue: &str, method: &str, request: &ClaimRequest) -> bool {
    let has = |list: &[String], name: &str| list.iter().any(|one| one == name);
    has(&request.queues, queue) && (method.is_empty() || has(&request.methods, method))
}

/// Whether a filter asks for more than ids, types and states.
pub(crate) fn asks_for_the_document(filter: &Filter) -> bool {
    filter.on_hold
        || !filter.labels.is_empty()
        || filter.created_after.is_some()
        || filter.created_before.is_some()
}

/// Whether a document is as the filter says in what is more than ids, types and states.
pub(crate) fn fits(document: &Document, filter: &Filter) -> bool {
    let has_label = |(name, value): &(String, String)| {
        let found = document
            .get_document("labels")
            .ok()
            .and_then(|labels| labels.get_str(name).ok());
        found == Some(value.as_str())
    };
    let created = document.get_datetime("createdAt").ok();
    filter.labels.iter().all(has_label)
        && (!filter.on_hold || document.contains_key("hold"))
        && filter
            .created_after
            .is_none_or(|time| created.is_some_and(|created| *created >= time))
        && filter
            .created_before
            .is_none_or(|time| created.is_some_and(|created| *created < time))
}

/// Whether it has more levels than it may.
pub(crate) fn is_too_deep(document: &Document) -> bool {
    document.values().any(|value| goes_below(value, 1))
}

/// Whether a value at this level has something below the last one. Without recursion, since what is too deep may be much too deep.
pub(crate) fn goes_below(value: &Bson, level: usize) -> bool {
    if !matches!(
        value,
        Bson::Document(_) | Bson::Array(_) | Bson::JavaScriptCodeWithScope(_)
    ) {
        return level > MAX_LEVELS;
    }
    let mut rest = vec![(value, level)];
    while let Some((value, level)) = rest.pop() {
        if level > MAX_LEVELS {
            return true;
        }
        match value {
            Bson::Document(inner) => rest.extend(inner.values().map(|value| (value, level + 1))),
            Bson::Array(items) => rest.extend(items.iter().map(|value| (value, level + 1))),
            Bson::JavaScriptCodeWithScope(code) => {
                rest.extend(code.scope.values().map(|value| (value, level + 1)));
            }
            _ => {}
        }
    }
    false
}

/// What users have put into a record, each with its level in the document.
pub(crate) fn user_values(record: &MilestoneRecord) -> impl Iterator<Item = (usize, &Bson)> {
    let outputs = record
        .actions
        .iter()
        .filter_map(|action| Some((3, action.output.as_ref()?)));
    let resolved = record
        .inbox
        .iter()
        .filter_map(|command| match &command.order {
            Order::Resolve { output, .. } => Some((5, output)),
            _ => None,
        });
    std::iter::once((1, &record.parameters))
        .chain(outputs)
        .chain(resolved)
}

/// Whether the document of a record would have more levels than it may.
pub(crate) fn is_record_too_deep(record: &MilestoneRecord) -> bool {
    user_values(record).any(|(level, value)| goes_below(value, level))
}

/// Whether a patch sets something that has more levels than it may.
pub(crate) fn is_patch_too_deep(patch: &Patch) -> bool {
    let level_of = |path: &str| path.split('.').count();
    patch
        .values()
        .any(|(path, value)| goes_below(value, level_of(path)))
}
