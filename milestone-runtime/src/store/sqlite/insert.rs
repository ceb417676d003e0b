//! New milestones.

use std::sync::Arc;

use milestone_core::record::{MilestoneId, MilestoneRecord};

use super::{
    super::{Insertion, StoreError},
    encode,
    errors::Outcome,
    row::{self, Row, Stored},
    session::Session,
};

/// A milestone on its way: its row is made by the caller, so that the thread that writes is not kept.
pub(super) struct Prepared {
    id: MilestoneId,
    owner: Option<String>,
    row: Result<Row, StoreError>,
}

pub(super) fn prepare(record: &MilestoneRecord) -> Prepared {
    Prepared {
        id: record.id.clone(),
        owner: record.lease.as_ref().map(|lease| lease.owner.clone()),
        row: encode::record(record).map(|document| Row::encoded(&record.id, document)),
    }
}

pub(super) fn insert(session: &mut Session<'_>, batch: Vec<Prepared>) -> Outcome<Vec<Insertion>> {
    batch
        .into_iter()
        .map(|one| insert_one(session, one))
        .collect()
}

fn insert_one(session: &mut Session<'_>, one: Prepared) -> Outcome<Insertion> {
    let row = match one.row {
        Ok(row) => row,
        Err(error) => return Ok(Insertion::Refused(Arc::new(error))),
    };
    if let Some(owner) = &one.owner {
        session.alive.hold(owner)?;
    }
    if row.insert(session)? {
        session.hint |= one.owner.is_none();
        return Ok(Insertion::Inserted);
    }
    match row::read(session.connection, session.database, &one.id)? {
        Stored::Document(document) => {
            Ok(Insertion::Exists(MilestoneRecord::from_document(document)))
        }
        Stored::Broken(unreadable) => Ok(Insertion::Exists(Err(unreadable))),
        Stored::Missing => {
            Err(StoreError::Other(format!("the milestone {} is there and is not", one.id)).into())
        }
    }
}
