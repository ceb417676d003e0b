//! Carrying out patches.

use std::sync::Arc;

use super::{
    super::{Commit, Committed, document},
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
    if let Err(answer) = document::commit(&mut document, commit) {
        return Ok(answer);
    }
    match Row::new(&commit.id, &document) {
        Ok(row) => row.replace(session)?,
        Err(error) => return Ok(Committed::Refused(Arc::new(error))),
    }
    session.hint |= commit.patch.releases();
    Ok(Committed::Done)
}
