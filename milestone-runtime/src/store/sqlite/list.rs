//! Reading.

use bson::{Document, RawDocument};
use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};
use rusqlite::{params_from_iter, types::Value};

use super::{
    super::{
        Filter, Listed, Page, Tally,
        document::{asks_for_the_document, fits},
        filter::{Tallies, is_terminal},
    },
    errors::Outcome,
    row::{self, Stored},
    session::Reading,
};

pub(super) fn get(
    reading: Reading<'_>,
    ids: &[MilestoneId],
) -> Outcome<Vec<Result<MilestoneRecord, Unreadable>>> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        match row::read(reading.connection, reading.database, id)? {
            Stored::Missing => {}
            Stored::Broken(unreadable) => found.push(Err(unreadable)),
            Stored::Document(document) => found.push(MilestoneRecord::from_document(document)),
        }
    }
    Ok(found)
}

pub(super) fn list(reading: Reading<'_>, filter: &Filter, page: &Page) -> Outcome<Listed> {
    let mut listed = Listed::default();
    let limit = page.limit.max(1);
    let mut last = None;
    walk(reading, filter, page.after.as_ref(), |id, document| {
        if listed.records.len() + listed.unreadable.len() == limit {
            // There is more behind the last one.
            listed.next = last.take();
            return false;
        }
        match document.and_then(MilestoneRecord::from_document) {
            Ok(record) => listed.records.push(record),
            Err(unreadable) => listed.unreadable.push(unreadable),
        }
        last = Some(id);
        true
    })?;
    Ok(listed)
}

pub(super) fn count(reading: Reading<'_>, filter: &Filter) -> Outcome<u64> {
    let mut count = 0;
    if !asks_for_the_document(filter) {
        let (condition, values) = condition(filter, None);
        let sql = format!(
            "SELECT count(*) FROM {} WHERE {condition}",
            reading.database.table
        );
        let rows: i64 = reading
            .connection
            .prepare_cached(&sql)?
            .query_row(params_from_iter(values), |row| row.get(0))?;
        return Ok(u64::try_from(rows).unwrap_or_default());
    }
    walk(reading, filter, None, |_, _| {
        count += 1;
        true
    })?;
    Ok(count)
}

/// How many there are of each type and state. The documents of those that are over are not looked at, unless the filter asks for it.
pub(super) fn tally(reading: Reading<'_>, filter: &Filter) -> Outcome<Vec<Tally>> {
    let (condition, values) = condition(filter, None);
    let sql = format!(
        "SELECT ifnull(type, ''), ifnull(state, ''), doc FROM {} WHERE {condition}",
        reading.database.table
    );
    let mut statement = reading.connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut tallies = Tallies::default();
    while let Some(row) = rows.next()? {
        let text = |column: usize| -> Outcome<&str> {
            Ok(row
                .get_ref(column)?
                .as_str()
                .map_err(rusqlite::Error::from)?)
        };
        let (kind, state) = (text(0)?, text(1)?);
        if is_terminal(state) && !asks_for_the_document(filter) {
            tallies.add(kind, state, false, None);
            continue;
        }
        let bytes = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        let is_meant =
            || Document::from_reader(bytes).is_ok_and(|document| fits(&document, filter));
        if asks_for_the_document(filter) && !is_meant() {
            continue;
        }
        // Two fields of each: not all of it is decoded for them.
        let document = RawDocument::from_bytes(bytes).ok();
        let on_hold = document.is_some_and(|document| matches!(document.get("hold"), Ok(Some(_))));
        let created_at = document.and_then(|document| document.get_datetime("createdAt").ok());
        tallies.add(kind, state, on_hold, created_at);
    }
    Ok(tallies.into_vec())
}

/// Shows what the filter finds, the highest id first, as long as there is interest.
fn walk(
    reading: Reading<'_>,
    filter: &Filter,
    after: Option<&MilestoneId>,
    mut show: impl FnMut(MilestoneId, Result<Document, Unreadable>) -> bool,
) -> Outcome<()> {
    let (condition, values) = condition(filter, after);
    let sql = format!(
        "SELECT id, doc FROM {} WHERE {condition} ORDER BY id DESC",
        reading.database.table
    );
    let mut statement = reading.connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let id = row::id(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        let document = row::decode(&id, row.get_ref(1)?);
        let fits = match &document {
            Ok(document) => fits(document, filter),
            Err(_) => !asks_for_the_document(filter),
        };
        if fits && !show(id, document) {
            break;
        }
    }
    Ok(())
}

fn condition(filter: &Filter, after: Option<&MilestoneId>) -> (String, Vec<Value>) {
    let mut conditions = vec!["true".to_owned()];
    let mut values: Vec<Value> = Vec::new();
    if let Some(kind) = &filter.kind {
        conditions.push("type = ?".to_owned());
        values.push(kind.clone().into());
    }
    if !filter.ids.is_empty() {
        conditions.push(format!(
            "id IN ({})",
            vec!["?"; filter.ids.len()].join(", ")
        ));
        values.extend(filter.ids.iter().map(|id| Value::from(row::key(id))));
    }
    if !filter.states.is_empty() {
        conditions.push(format!(
            "state IN ({})",
            vec!["?"; filter.states.len()].join(", ")
        ));
        values.extend(
            filter
                .states
                .iter()
                .map(|state| Value::from(state.as_str().to_owned())),
        );
    }
    if let Some(after) = after {
        conditions.push("id < ?".to_owned());
        values.push(row::key(after).into());
    }
    (conditions.join(" AND "), values)
}
