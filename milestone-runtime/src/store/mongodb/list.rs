//! Listing, counting and removing, for people and tools.

use bson::{Bson, Document, RawDocumentBuf, doc, oid::ObjectId};
use futures_util::TryStreamExt as _;
use milestone_core::record::MilestoneId;
use mongodb::{
    error::Error,
    options::{AggregateOptions, CountOptions},
};

use super::{
    connect::Connection,
    read::{self, Concern, among},
};
use crate::store::{Filter, Listed, Page, StoreError, Tally, filter::is_terminal};

/// The filter as MongoDB has it.
fn matching(filter: &Filter) -> Document {
    let mut matching = Document::new();
    if let Some(kind) = &filter.kind {
        matching.insert("type", kind);
    }
    if !filter.ids.is_empty() {
        let ids: Vec<Bson> = filter.ids.iter().cloned().map(Bson::from).collect();
        matching.insert("_id", doc! { "$in": ids });
    }
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        matching.insert("state", doc! { "$in": states });
    }
    let mut created = Document::new();
    created.extend(
        filter
            .created_after
            .map(|time| ("$gte".to_owned(), time.into())),
    );
    created.extend(
        filter
            .created_before
            .map(|time| ("$lt".to_owned(), time.into())),
    );
    if !created.is_empty() {
        matching.insert("createdAt", created);
    }
    if filter.on_hold {
        matching.insert("hold", doc! { "$exists": true });
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

/// What the filter finds in a range of `_id`.
fn within(mut matching: Document, range: Document) -> Document {
    match matching.get_document_mut("_id") {
        Ok(ids) => ids.extend(range),
        Err(_) => {
            matching.insert("_id", range);
        }
    }
    matching
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
            let mut found = find(connection, within(matching(filter), range), wanted)
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

/// How many there are of each type and state. The server adds them up, in one pass over the collection.
pub(super) async fn tally(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<Tally>, StoreError> {
    // A hold is a document, which is more than null and a missing field.
    let on_hold = doc! { "$cond": [{ "$gt": ["$hold", Bson::Null] }, 1, 0] };
    let group = doc! {
        "_id": { "type": "$type", "state": "$state" },
        "count": { "$sum": 1 },
        "onHold": { "$sum": on_hold },
        "oldest": { "$min": "$createdAt" },
    };
    let mut options = AggregateOptions::default();
    options.read_concern = Concern::Majority.options(connection).read_concern;
    let pipeline = [
        doc! { "$match": matching(filter) },
        doc! { "$group": group },
    ];
    let cursor = connection
        .milestones
        .aggregate(pipeline)
        .with_options(options)
        .await
        .map_err(|error| connection.error(error))?;
    let groups: Vec<Document> = cursor
        .try_collect()
        .await
        .map_err(|error| connection.error(error))?;
    Ok(groups.iter().map(counted).collect())
}

/// One group; what was changed by hand, so that it has no type or no state, counts as one without a name.
fn counted(group: &Document) -> Tally {
    let name = |key: &str| {
        let name = group.get_document("_id").and_then(|id| id.get_str(key));
        name.unwrap_or_default().to_owned()
    };
    let number = |key: &str| {
        let number = group.get(key).and_then(|number| match number {
            Bson::Int32(number) => Some(i64::from(*number)),
            Bson::Int64(number) => Some(*number),
            _ => None,
        });
        number.and_then(|number| u64::try_from(number).ok())
    };
    let state = name("state");
    let oldest = group.get_datetime("oldest").ok().copied();
    Tally {
        kind: name("type"),
        count: number("count").unwrap_or_default(),
        on_hold: number("onHold").unwrap_or_default(),
        oldest: oldest.filter(|_| !is_terminal(&state)),
        state,
    }
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
    use bson::DateTime;
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
    fn ids_and_dates_are_typed() {
        let id = ObjectId::new();
        let (after, before) = (DateTime::from_millis(7), DateTime::from_millis(9));
        let filter = Filter::new()
            .id(id)
            .id("a")
            .created_after(after)
            .created_before(before)
            .on_hold();
        let ids = vec![Bson::from(id), "a".into()];
        let expected = doc! {
            "_id": { "$in": ids.clone() }, "createdAt": { "$gte": after, "$lt": before },
            "hold": { "$exists": true },
        };
        assert_eq!(matching(&filter), expected);
        let range = within(matching(&filter), doc! { "$gte": "" });
        assert_eq!(
            range.get_document("_id").unwrap(),
            &doc! { "$in": ids, "$gte": "" }
        );
        assert_eq!(
            within(doc! {}, doc! { "$gte": "" }),
            doc! { "_id": { "$gte": "" } }
        );
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
