//! Taking milestones.

mod scan;

use std::cmp::Reverse;

use bson::Document;
use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};

use super::{
    super::{ClaimRequest, Claimed, document},
    errors::Outcome,
    row::{self, Row, Stored},
    session::{Reading, Session},
};
use scan::{Found, Scan};

/// How many times as many as it may take a worker looks at, to see which of them have the highest priority.
const SPREAD: usize = 3;

/// Whether there is anything that a worker could take, or that cannot be read.
pub(super) fn is_anything_due(reading: Reading<'_>, request: &ClaimRequest) -> Outcome<bool> {
    if request.limit == 0 {
        return Ok(false);
    }
    let mut any = false;
    Scan::new(reading, request).run(|_| {
        any = true;
        Ok(false)
    })?;
    Ok(any)
}

/// Takes what is due. Nobody else writes meanwhile, so none is missed.
pub(super) fn claim(session: &mut Session<'_>, request: &ClaimRequest) -> Outcome<Claimed> {
    session.alive.hold(&request.owner)?;
    let reading = Reading {
        connection: session.connection,
        database: session.database,
    };
    let mut choice = Choice::new(reading, request.limit);
    Scan::new(reading, request).run(|found| choice.add(found))?;
    choice.choose()?;
    let mut claimed = Claimed {
        unreadable: choice.unreadable,
        ..Claimed::default()
    };
    for (document, record) in choice.chosen {
        match take(document, record, request) {
            Ok((row, record)) => {
                row.replace(session)?;
                claimed.records.push(record);
            }
            Err(unreadable) => claimed.unreadable.push(unreadable),
        }
    }
    Ok(claimed)
}

fn take(
    mut document: Document,
    mut record: MilestoneRecord,
    request: &ClaimRequest,
) -> Result<(Row, MilestoneRecord), (MilestoneId, Unreadable)> {
    document::claim(&mut document, &mut record, request)
        .map_err(|unreadable| (record.id.clone(), unreadable))?;
    let row = Row::new(&record.id, &document).map_err(|error| {
        let unreadable = Unreadable {
            id: record.id.to_string(),
            reason: error.to_string(),
        };
        (record.id.clone(), unreadable)
    })?;
    Ok((row, record))
}

/// What is taken of that which is due: of a few at a time, those with the highest priority.
struct Choice<'a> {
    reading: Reading<'a>,
    limit: usize,
    waiting: Vec<Found>,
    chosen: Vec<(Document, MilestoneRecord)>,
    unreadable: Vec<(MilestoneId, Unreadable)>,
}

impl<'a> Choice<'a> {
    fn new(reading: Reading<'a>, limit: usize) -> Self {
        Self {
            reading,
            limit,
            waiting: Vec::new(),
            chosen: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// Tells whether there is room for more.
    fn add(&mut self, found: Found) -> Outcome<bool> {
        self.waiting.push(found);
        if self.waiting.len() >= self.limit.saturating_mul(SPREAD) {
            self.choose()?;
        }
        Ok(self.chosen.len() < self.limit)
    }

    fn choose(&mut self) -> Outcome<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        // Of one priority, what was found first stays first.
        waiting.sort_by_key(|found| Reverse(found.priority));
        for Found { id, .. } in waiting {
            if self.chosen.len() == self.limit {
                break;
            }
            let document = match row::read(self.reading.connection, self.reading.database, &id)? {
                Stored::Missing => continue,
                Stored::Broken(unreadable) => Err(unreadable),
                Stored::Document(document) => Ok(document),
            };
            let read = document.and_then(|document| {
                Ok((MilestoneRecord::from_document(document.clone())?, document))
            });
            match read {
                Ok((record, document)) => self.chosen.push((document, record)),
                Err(unreadable) => self.unreadable.push((id, unreadable)),
            }
        }
        Ok(())
    }
}
