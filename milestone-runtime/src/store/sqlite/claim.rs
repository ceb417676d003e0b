//! Taking milestones.

mod scan;

use bson::Document;
use milestone_core::{
    lease,
    record::{Lease, MilestoneId, MilestoneRecord, Unreadable},
};

use super::{
    super::{ClaimRequest, Claimed},
    errors::Outcome,
    row::{self, Row, Stored},
    session::{Reading, Session},
};
use scan::Scan;

/// Whether there is anything that a worker could take, or that cannot be read.
pub(super) fn is_anything_due(reading: Reading<'_>, request: &ClaimRequest) -> Outcome<bool> {
    if request.limit == 0 {
        return Ok(false);
    }
    let mut any = false;
    Scan::new(reading.connection, reading.database, request).run(|_| {
        any = true;
        Ok(false)
    })?;
    Ok(any)
}

/// Takes what is due. Nobody else writes meanwhile, so none is missed.
pub(super) fn claim(session: &mut Session<'_>, request: &ClaimRequest) -> Outcome<Claimed> {
    session.alive.hold(&request.owner)?;
    let mut claimed = Claimed::default();
    let mut found: Vec<(Document, MilestoneRecord)> = Vec::new();
    let (connection, database) = (session.connection, session.database);
    let most = request.limit.saturating_mul(SPREAD);
    Scan::new(connection, database, request).run(|id| {
        match candidate(
            Reading {
                connection,
                database,
            },
            &id,
        )? {
            Some(Ok(candidate)) => found.push(candidate),
            Some(Err(unreadable)) => claimed.unreadable.push((id, unreadable)),
            None => {}
        }
        Ok(found.len() < most)
    })?;
    // Of the same priority, what was found first stays first.
    found.sort_by_key(|(_, record)| std::cmp::Reverse(record.priority));
    found.truncate(request.limit);
    for (mut document, mut record) in found {
        let lease = Lease {
            owner: request.owner.clone(),
            token: request.token.clone(),
            since: request.now,
            until: request.until,
        };
        let patch = lease::claim(&mut record, lease);
        record.rev += 1;
        let unreadable = |reason: String| {
            (
                record.id.clone(),
                Unreadable {
                    id: record.id.to_string(),
                    reason,
                },
            )
        };
        if let Err(error) = patch.apply_to(&mut document, record.rev) {
            claimed.unreadable.push(unreadable(error.to_string()));
            continue;
        }
        match Row::new(&record.id, &document) {
            Ok(row) => row.replace(session)?,
            Err(error) => {
                claimed.unreadable.push(unreadable(error.to_string()));
                continue;
            }
        }
        claimed.records.push(record);
    }
    Ok(claimed)
}

/// How many times as many as it may take a worker looks at, to see which of them has the highest priority.
const SPREAD: usize = 3;

fn candidate(
    reading: Reading<'_>,
    id: &MilestoneId,
) -> Outcome<Option<Result<(Document, MilestoneRecord), Unreadable>>> {
    let document = match row::read(reading.connection, reading.database, id)? {
        Stored::Missing => return Ok(None),
        Stored::Broken(unreadable) => return Ok(Some(Err(unreadable))),
        Stored::Document(document) => document,
    };
    let record = MilestoneRecord::from_document(document.clone());
    Ok(Some(record.map(|record| (document, record))))
}
