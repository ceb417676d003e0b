//! Leases that go on.

use super::{
    super::{
        RenewRequest, Renewed,
        document::{self, integer, token},
    },
    clock,
    errors::Outcome,
    row::{self, Row, Stored},
    session::Session,
};

pub(super) fn renew(session: &mut Session<'_>, request: &RenewRequest) -> Outcome<Renewed> {
    session.alive.hold(&request.owner)?;
    let mut renewed = Renewed {
        lost: Vec::new(),
        unrenewed: Vec::new(),
        mail: Vec::new(),
        now: clock::now(),
    };
    for (id, held) in &request.holds {
        let mut document = match row::read(session.connection, session.database, id)? {
            Stored::Document(document) if token(&document) == Some(held.as_str()) => document,
            _ => {
                renewed.lost.push(id.clone());
                continue;
            }
        };
        if document::renew(&mut document, request.until) {
            Row::new(id, &document)?.replace(session)?;
        }
        match integer(&document, "mail") {
            Some(mail) if mail > 0 => renewed.mail.push((id.clone(), mail)),
            _ => {}
        }
    }
    Ok(renewed)
}
