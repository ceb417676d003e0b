//! Taking milestones.

mod scan;

use std::cmp::Reverse;

use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};

use super::{
    super::{ClaimRequest, Claimed, document},
    encode,
    errors::Outcome,
    row::{self, Row},
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
        match take(&document, record, request) {
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
    document: &[u8],
    mut record: MilestoneRecord,
    request: &ClaimRequest,
) -> Result<(Row, MilestoneRecord), (MilestoneId, Unreadable)> {
    let patch = document::lease(&mut record, request);
    let unreadable = |reason: String| {
        let id = record.id.to_string();
        (record.id.clone(), Unreadable { id, reason })
    };
    let document = patch
        .apply_to_bytes(document, record.rev)
        .map_err(|error| unreadable(error.to_string()))?;
    let document = encode::check_size(document).map_err(|error| unreadable(error.to_string()))?;
    Ok((Row::encoded(&record.id, document), record))
}

/// What is taken of that which is due: of a few at a time, those with the highest priority.
struct Choice<'a> {
    reading: Reading<'a>,
    limit: usize,
    waiting: Vec<Found>,
    chosen: Vec<(Vec<u8>, MilestoneRecord)>,
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
            let Reading {
                connection,
                database,
            } = self.reading;
            let read = row::look(connection, database, &id, |_, column| {
                let record = row::decode(&id, column).and_then(MilestoneRecord::from_document)?;
                let document = column.as_blob().unwrap_or_default().to_vec();
                Ok((document, record))
            })?;
            match read {
                None => {}
                Some(Ok(chosen)) => self.chosen.push(chosen),
                Some(Err(unreadable)) => self.unreadable.push((id, unreadable)),
            }
        }
        Ok(())
    }
}
