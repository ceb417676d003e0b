//! Leases that go on.

use bson::{Bson, DateTime, Document};

use super::{
    super::{RenewRequest, Renewed},
    clock,
    commit::{integer, token},
    errors::Outcome,
    row::{self, Row, Stored},
    session::Session,
};

pub(super) fn renew(session: &mut Session<'_>, request: &RenewRequest) -> Outcome<Renewed> {
    session.alive.hold(&request.owner)?;
    let mut renewed = Renewed {
        lost: Vec::new(),
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
        let later = [
            raise(&mut document, "lease", "until", request.until),
            raise(&mut document, "next", "at", request.until),
        ];
        if later.contains(&true) {
            Row::new(id, &document)?.replace(session)?;
        }
        match integer(&document, "mail") {
            Some(mail) if mail > 0 => renewed.mail.push((id.clone(), mail)),
            _ => {}
        }
    }
    Ok(renewed)
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
