//! Commands from outside.

use milestone_core::record::{Command, MilestoneId};

use super::{
    super::{Sent, StoreError, document},
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
    if let Err(answer) = document::send(&mut document, command)? {
        return Ok(answer);
    }
    Row::new(id, &document)?.replace(session)?;
    session.hint = true;
    Ok(Sent::Delivered)
}
