//! Listing, counting and removing, for people and tools.

use bson::{Bson, Document, RawDocumentBuf, doc, oid::ObjectId};
use futures_util::TryStreamExt as _;
use milestone_core::record::MilestoneId;
use mongodb::{error::Error, options::CountOptions};

use super::{
    connect::Connection,
    read::{self, Concern, among},
};
use crate::store::{Filter, Listed, Page, StoreError};

/// The filter as MongoDB has it.
fn matching(filter: &Filter) -> Document {
    let mut matching = Document::new();
    if let Some(kind) = &filter.kind {
        matching.insert("type", kind);
    }
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        matching.insert("state", doc! { "$in": states });
    }
    let mut all = Vec::new();
    for (name, value) in &filter.labels {
        if name.is_empty() || name.contains(['.', '$']) {
            // No path leads to such a name.
            let label = doc! { "$getField": { "field": { "$literal": name }, "input": "$labels" } };
            all.push(doc! { "$expr": { "$eq": [label, { "$literal": value }] } });
        } else {
            all.push(doc! { format!("labels.{name}"): value });
        }
    }
    if !all.is_empty() {
        matching.insert("$and", all);
    }
    matching
}

/// The ranges of `_id` to go through, one after the other: MongoDB compares only values of one type, and has strings below the ids that it makes.
fn ranges(after: Option<&MilestoneId>) -> Vec<Document> {
    let strings = doc! { "$gte": "" };
    let object_ids = doc! { "$gte": ObjectId::from_bytes([0; 12]) };
    let below = |mut range: Document, id: Bson| {
        range.insert("$lt", id);
        range
    };
    match after {
        None => vec![object_ids, strings],
        Some(MilestoneId::ObjectId(id)) => vec![below(object_ids, id.into()), strings],
        Some(MilestoneId::String(id)) => vec![below(strings, id.into())],
    }
}

async fn find(
    connection: &Connection,
    filter: Document,
    limit: usize,
) -> Result<Vec<RawDocumentBuf>, Error> {
    let find = connection
        .milestones
        .find(filter)
        .with_options(Concern::Majority.options(connection));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    find.sort(doc! { "_id": -1 })
        .limit(limit)
        .await?
        .try_collect()
        .await
}

/// One page, the highest `_id` first.
pub(super) async fn list(
    connection: &Connection,
    filter: &Filter,
    page: &Page,
) -> Result<Listed, StoreError> {
    let mut listed = Listed::default();
    if page.limit == 0 {
        return Ok(listed);
    }
    let mut documents = Vec::new();
    for range in ranges(page.after.as_ref()) {
        // One more tells whether there is another page.
        let wanted = page.limit + 1 - documents.len();
        if wanted > 0 {
            let mut filter = matching(filter);
            filter.insert("_id", range);
            let mut found = find(connection, filter, wanted)
                .await
                .map_err(|error| connection.error(error))?;
            documents.append(&mut found);
        }
    }
    if documents.len() > page.limit {
        documents.truncate(page.limit);
        listed.next = documents.last().and_then(read::id);
    }
    for document in documents {
        match read::record(&document) {
            Ok(record) => listed.records.push(record),
            Err(unreadable) => listed.unreadable.push(unreadable),
        }
    }
    Ok(listed)
}

/// How many there are.
pub(super) async fn count(connection: &Connection, filter: &Filter) -> Result<u64, StoreError> {
    let mut options = CountOptions::default();
    options.read_concern = Concern::Majority.options(connection).read_concern;
    let count = connection
        .milestones
        .count_documents(matching(filter))
        .with_options(options)
        .await;
    count.map_err(|error| connection.error(error))
}

/// Removes one.
pub(super) async fn remove(connection: &Connection, id: &MilestoneId) -> Result<bool, StoreError> {
    let removed = connection
        .milestones
        .delete_one(among(std::slice::from_ref(id)))
        .await;
    Ok(removed
        .map_err(|error| connection.error(error))?
        .deleted_count
        > 0)
}

#[cfg(test)]
mod tests {
    use milestone_core::record::Status;

    use super::*;

    #[test]
    fn an_empty_filter_is_all() {
        assert_eq!(matching(&Filter::new()), doc! {});
    }

    #[test]
    fn labels_may_have_names_to_which_no_path_leads() {
        let filter = Filter::new()
            .kind("T")
            .state(Status::Failed)
            .state(Status::InDoubt)
            .label("a", "1")
            .label("b.c", "$2");
        let label = doc! { "$getField": { "field": { "$literal": "b.c" }, "input": "$labels" } };
        let expected = doc! {
            "type": "T", "state": { "$in": ["failed", "in_doubt"] },
            "$and": [{ "labels.a": "1" }, { "$expr": { "$eq": [label, { "$literal": "$2" }] } }],
        };
        assert_eq!(matching(&filter), expected);
    }

    #[test]
    fn object_ids_come_before_strings() {
        let zero = ObjectId::from_bytes([0; 12]);
        let some = ObjectId::new();
        assert_eq!(ranges(None), [doc! { "$gte": zero }, doc! { "$gte": "" }]);
        assert_eq!(
            ranges(Some(&some.into())),
            [doc! { "$gte": zero, "$lt": some }, doc! { "$gte": "" }]
        );
        assert_eq!(ranges(Some(&"a".into())), [doc! { "$gte": "", "$lt": "a" }]);
    }
}
