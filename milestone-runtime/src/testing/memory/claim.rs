//! Taking milestones.

use std::{cmp::Reverse, collections::BTreeMap};

use bson::{DateTime, Document};
use milestone_core::record::{MilestoneRecord, Unreadable};

use super::Key;
use crate::store::{
    ClaimRequest, Claimed,
    document::{self, integer, is_served},
};

/// How many times as many as it may take a worker looks at, to see which of them have the highest priority.
const SPREAD: usize = 3;

/// Takes what is due. Nobody else writes meanwhile, so none is missed.
pub(super) fn claim(documents: &mut BTreeMap<Key, Document>, request: &ClaimRequest) -> Claimed {
    let mut claimed = Claimed::default();
    let due = documents.iter().filter_map(|(key, document)| {
        let at = due_at(document, request)?;
        (!request.except.contains(&key.id)).then(|| (at, key.clone()))
    });
    let mut due: Vec<(DateTime, Key)> = due.collect();
    due.sort();
    for few in due.chunks(request.limit.saturating_mul(SPREAD).max(1)) {
        let priority = |key: &Key| {
            documents
                .get(key)
                .and_then(|found| integer(found, "priority"))
        };
        let mut few: Vec<&Key> = few.iter().map(|(_, key)| key).collect();
        // Of one priority, what was due first stays first.
        few.sort_by_key(|key| Reverse(priority(key).unwrap_or_default()));
        for key in few {
            if claimed.records.len() >= request.limit {
                return claimed;
            }
            let Some(stored) = documents.get_mut(key) else {
                continue;
            };
            let mut document = stored.clone();
            let taken = MilestoneRecord::from_document(document.clone()).and_then(|mut record| {
                let patch = document::lease(&mut record, request);
                let applied = patch.apply_to(&mut document, record.rev);
                applied.map_err(|error| Unreadable {
                    id: record.id.to_string(),
                    reason: error.to_string(),
                })?;
                Ok(record)
            });
            match taken {
                Ok(record) => {
                    *stored = document;
                    claimed.records.push(record);
                }
                Err(unreadable) => claimed.unreadable.push((key.id.clone(), unreadable)),
            }
        }
    }
    claimed
}

/// Since when it is due, if the worker may take it.
fn due_at(document: &Document, request: &ClaimRequest) -> Option<DateTime> {
    let next = document.get_document("next").ok()?;
    let at = *next.get_datetime("at").ok()?;
    let queue = next.get_str("queue").ok()?;
    let lease = document.get_document("lease").ok();
    let is_free = lease.is_none_or(|lease| {
        let until = lease.get_datetime("until").ok();
        until
            .zip(request.expired_before)
            .is_some_and(|(until, before)| *until < before)
    });
    let mut due = document.get_array("due").ok()?.iter();
    let is_due = due.any(|due| {
        let entry = due.as_document().and_then(|due| {
            let at = due.get_datetime("at").ok()?;
            Some((at, due.get_str("queue").ok()?, due.get_str("method").ok()?))
        });
        entry.is_some_and(|(at, queue, method)| {
            *at <= request.now && is_served(queue, method, request)
        })
    });
    let is_asked_for = at <= request.now && request.queues.iter().any(|asked| asked == queue);
    (is_asked_for && is_free && is_due).then_some(at)
}
