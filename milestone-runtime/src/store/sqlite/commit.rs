//! Carrying out patches.

use std::sync::Arc;

use milestone_core::{patch::PatchError, record::MilestoneId};
use rusqlite::types::ValueRef;

use super::{
    super::{
        Commit, Committed, StoreError,
        document::{self, Fate, Standing},
    },
    encode,
    errors::Outcome,
    row::{self, Row, Top},
    session::Session,
};

pub(super) fn commit(session: &mut Session<'_>, commit: &Commit) -> Outcome<Committed> {
    let look = |rowid, column: ValueRef<'_>| change(commit, rowid, column);
    let changed = row::look(session.connection, session.database, &commit.id, look)?;
    match changed {
        None => return Ok(Committed::Lost),
        Some(Err(answer)) => return Ok(answer),
        Some(Ok(change)) => change.write(session, &commit.id)?,
    }
    session.hint |= commit.patch.releases();
    Ok(Committed::Done)
}

/// A document as a patch has made it.
struct Change {
    document: Vec<u8>,
    /// The number of the row, if its places in the indexes stay.
    step: Option<i64>,
}

impl Change {
    fn write(self, session: &Session<'_>, id: &MilestoneId) -> Outcome<()> {
        match (self.step, Top::of(&self.document)) {
            (Some(rowid), Some(top)) => row::step(session, rowid, &self.document, &top),
            _ => Row::encoded(id, self.document).replace(session),
        }
    }
}

/// Carries out a patch. `Err`: it is not to be stored, and that is why.
fn change(commit: &Commit, rowid: i64, column: ValueRef<'_>) -> Result<Change, Committed> {
    let Some((bytes, top)) = column
        .as_blob()
        .ok()
        .and_then(|bytes| Some((bytes, Top::of(bytes)?)))
    else {
        return Err(Committed::Lost);
    };
    let standing = Standing {
        token: top.token,
        rev: top.rev,
        mail: top.mail,
    };
    match standing.fate_of(commit) {
        Fate::Apply => {}
        Fate::DoneBefore => return Err(Committed::Done),
        Fate::Lost => return Err(Committed::Lost),
        Fate::Mail => {
            let document = row::decode(&commit.id, column);
            return Err(document.map_or(Committed::Lost, document::mail_of));
        }
    }
    let refused = |error: StoreError| Committed::Refused(Arc::new(error));
    encode::check_levels(document::is_patch_too_deep(&commit.patch)).map_err(refused)?;
    let document = commit.patch.apply_to_bytes(bytes, commit.rev + 1);
    let document = document.map_err(|error| match error {
        PatchError::Malformed(_) => Committed::Lost,
        error => document::refused(error.to_string()),
    })?;
    let document = encode::check_size(document).map_err(refused)?;
    let is_step = Top::of(&document).is_some_and(|new| new.is_indexed_as(&top));
    Ok(Change {
        step: is_step.then_some(rowid),
        document,
    })
}
