//! Reading.

use std::{collections::BTreeMap, ops::Bound};

use bson::Document;
use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};

use super::Key;
use crate::store::{Filter, Listed, Page, document::fits};

pub(super) fn get(
    documents: &BTreeMap<Key, Document>,
    ids: Vec<MilestoneId>,
) -> Vec<Result<MilestoneRecord, Unreadable>> {
    ids.into_iter()
        .filter_map(|id| documents.get(&Key::from(id)))
        .map(|document| MilestoneRecord::from_document(document.clone()))
        .collect()
}

pub(super) fn list(documents: &BTreeMap<Key, Document>, filter: &Filter, page: Page) -> Listed {
    let mut listed = Listed::default();
    let limit = page.limit.max(1);
    let after = page.after.map(Key::from);
    let end = after.map_or(Bound::Unbounded, Bound::Excluded);
    let found = documents.range((Bound::Unbounded, end)).rev();
    let mut found = found.filter(|(_, document)| is_meant(document, filter));
    let mut last = None;
    for (key, document) in found.by_ref().take(limit) {
        match MilestoneRecord::from_document(document.clone()) {
            Ok(record) => listed.records.push(record),
            Err(unreadable) => listed.unreadable.push(unreadable),
        }
        last = Some(key.id.clone());
    }
    listed.next = found.next().and(last);
    listed
}

pub(super) fn count(documents: &BTreeMap<Key, Document>, filter: &Filter) -> u64 {
    let found = documents
        .values()
        .filter(|document| is_meant(document, filter));
    found.count() as u64
}

fn is_meant(document: &Document, filter: &Filter) -> bool {
    let id = document.get("_id");
    let is_one_of = |ids: &[MilestoneId]| {
        let id = id.and_then(|id| MilestoneId::try_from(id).ok());
        ids.is_empty() || id.is_some_and(|id| ids.contains(&id))
    };
    let kind = document.get_str("type").ok();
    let state = document.get_str("state").ok();
    is_one_of(&filter.ids)
        && filter
            .kind
            .as_deref()
            .is_none_or(|asked| kind == Some(asked))
        && (filter.states.is_empty()
            || filter
                .states
                .iter()
                .any(|asked| state == Some(asked.as_str())))
        && fits(document, filter)
}
