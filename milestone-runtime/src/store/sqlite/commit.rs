//! Carrying out patches.

use std::sync::Arc;

use bson::{Bson, Document};
use milestone_core::record::MilestoneRecord;

use super::{
    super::{Commit, Committed, StoreError},
    errors::Outcome,
    row::{self, Row, Stored},
    session::Session,
};

pub(super) fn commit(session: &mut Session<'_>, commit: &Commit) -> Outcome<Committed> {
    let Stored::Document(mut document) =
        row::read(session.connection, session.database, &commit.id)?
    else {
        return Ok(Committed::Lost);
    };
    let token = token(&document);
    let rev = integer(&document, "rev");
    let next = commit.rev.checked_add(1);
    let is_holder = token == Some(commit.token.as_str());
    if next.is_none() || rev != Some(commit.rev) || !is_holder {
        // It may have been done before, by a call whose answer was lost.
        let done = rev.is_some()
            && rev == next
            && (is_holder || (token.is_none() && commit.patch.releases()));
        return Ok(if done {
            Committed::Done
        } else {
            Committed::Lost
        });
    }
    if commit
        .patch
        .mail()
        .is_some_and(|mail| integer(&document, "mail").unwrap_or_default() != mail)
    {
        return Ok(match MilestoneRecord::from_document(document) {
            Ok(record) => Committed::Mail(Box::new(record)),
            Err(_) => Committed::Lost,
        });
    }
    let refused = |error: StoreError| Ok(Committed::Refused(Arc::new(error)));
    if let Err(error) = commit.patch.apply_to(&mut document, commit.rev + 1) {
        return refused(StoreError::Refused {
            reason: error.to_string(),
        });
    }
    match Row::new(&commit.id, &document) {
        Ok(row) => row.replace(session)?,
        Err(error) => return refused(error),
    }
    session.hint |= commit.patch.releases();
    Ok(Committed::Done)
}

/// The token of the lease, if there is one.
pub(super) fn token(document: &Document) -> Option<&str> {
    document.get("lease")?.as_document()?.get_str("token").ok()
}

/// A whole number of any width.
pub(super) fn integer(document: &Document, name: &str) -> Option<i64> {
    match document.get(name)? {
        Bson::Int64(value) => Some(*value),
        Bson::Int32(value) => Some(i64::from(*value)),
        _ => None,
    }
}
