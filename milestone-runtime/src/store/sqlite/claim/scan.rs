//! Finding what is due: by the columns alone, without a look at the documents.

use std::{collections::HashSet, path::PathBuf};

use bson::{DateTime, RawDocument};
use milestone_core::record::MilestoneId;
use rusqlite::{CachedStatement, OptionalExtension, Row, Rows, types::ValueRef};

use crate::store::{
    ClaimRequest,
    document::is_served,
    sqlite::{alive, errors::Outcome, row, session::Reading},
};

/// A milestone that may be taken.
pub(super) struct Found {
    pub(super) id: MilestoneId,
    pub(super) priority: i64,
}

pub(super) struct Scan<'a> {
    reading: Reading<'a>,
    request: &'a ClaimRequest,
    folder: Option<PathBuf>,
    except: HashSet<String>,
}

/// What the columns of a row say.
struct Entry {
    key: String,
    at: i64,
    until: Option<i64>,
    /// From when on there is something in it that the worker can move on; nothing: never.
    served_at: Option<DateTime>,
    priority: i64,
}

impl Entry {
    fn read(row: &Row<'_>, request: &ClaimRequest) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get(0)?,
            at: row.get(1)?,
            until: row.get(2)?,
            served_at: served_at(row.get_ref(3)?, request),
            priority: row.get(4)?,
        })
    }

    fn found(&self) -> Found {
        Found {
            id: row::id(&self.key),
            priority: self.priority,
        }
    }
}

/// The earliest of the entries that are for the worker. What is no entry is for nobody.
fn served_at(column: ValueRef<'_>, request: &ClaimRequest) -> Option<DateTime> {
    let document = RawDocument::from_bytes(column.as_blob().ok()?).ok()?;
    let entries = document.get_array("due").ok()?.into_iter();
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?.as_document()?;
            let (queue, method) = (entry.get_str("queue").ok()?, entry.get_str("method").ok()?);
            let at = entry.get_datetime("at").ok()?;
            is_served(queue, method, request).then_some(at)
        })
        .min()
}

impl<'a> Scan<'a> {
    pub(super) fn new(reading: Reading<'a>, request: &'a ClaimRequest) -> Self {
        let except = request.except.iter().map(row::key).collect();
        let folder = reading.database.folder();
        Self {
            reading,
            request,
            folder,
            except,
        }
    }

    /// Shows what may be taken, as long as there is interest: first what dead workers held, then what is due, the earliest first.
    pub(super) fn run(&self, mut show: impl FnMut(Found) -> Outcome<bool>) -> Outcome<()> {
        let mut shown = HashSet::new();
        for owner in self.dead()? {
            for entry in self.held_by(&owner)? {
                let found = entry.found();
                shown.insert(entry.key);
                if !show(found)? {
                    return Ok(());
                }
            }
        }
        let mut statements = Vec::with_capacity(self.request.queues.len());
        for _ in &self.request.queues {
            statements.push(self.due_statement()?);
        }
        let mut queues = Vec::with_capacity(statements.len());
        for (statement, queue) in statements.iter_mut().zip(&self.request.queues) {
            let rows = statement.query((queue, self.request.now.timestamp_millis()))?;
            queues.push(Queue::new(rows, self.request)?);
        }
        while let Some(entry) = next(&mut queues)? {
            let is_free = match (entry.until, self.request.expired_before) {
                (None, _) => true,
                (Some(until), Some(before)) => until < before.timestamp_millis(),
                (Some(_), None) => false,
            };
            let is_due = entry.served_at.is_some_and(|at| at <= self.request.now);
            if !is_free || !is_due || self.except.contains(&entry.key) {
                continue;
            }
            let found = entry.found();
            // A queue may be named twice, and a milestone of a dead worker may be due.
            if shown.insert(entry.key) && !show(found)? {
                break;
            }
        }
        Ok(())
    }

    fn due_statement(&self) -> Outcome<CachedStatement<'a>> {
        let sql = due_sql(&self.reading.database.table);
        Ok(self.reading.connection.prepare_cached(&sql)?)
    }

    /// The dead workers that hold milestones.
    fn dead(&self) -> Outcome<Vec<String>> {
        let mut dead = Vec::new();
        let Some(folder) = &self.folder else {
            return Ok(dead);
        };
        let sql = owner_sql(&self.reading.database.table);
        let mut statement = self.reading.connection.prepare_cached(&sql)?;
        let mut last = String::new();
        while let Some(owner) = statement
            .query_row([&last], |row| row.get::<_, Option<String>>(0))
            .optional()?
            .flatten()
        {
            if owner != self.request.owner && alive::is_dead(Some(folder), &owner) {
                dead.push(owner.clone());
            }
            last = owner;
        }
        Ok(dead)
    }

    /// What a dead worker held, whenever its leases would have ended.
    fn held_by(&self, owner: &str) -> Outcome<Vec<Entry>> {
        let sql = held_sql(&self.reading.database.table);
        let mut statement = self.reading.connection.prepare_cached(&sql)?;
        let rows = statement.query_map([owner], |row| Entry::read(row, self.request))?;
        let mut held = Vec::new();
        for entry in rows {
            let entry = entry?;
            if entry.served_at.is_some() && !self.except.contains(&entry.key) {
                held.push(entry);
            }
        }
        Ok(held)
    }
}

/// What is due in a queue, the earliest first.
fn due_sql(table: &str) -> String {
    format!(
        "SELECT id, next_at, until, due, priority FROM {table} WHERE next_queue = ? AND next_at <= ? ORDER BY next_at"
    )
}

/// From one owner to the next by the index, past all that each of them holds.
fn owner_sql(table: &str) -> String {
    format!("SELECT min(owner) FROM {table} WHERE owner > ?")
}

/// What a worker holds.
fn held_sql(table: &str) -> String {
    format!("SELECT id, ifnull(next_at, 0), until, due, priority FROM {table} WHERE owner = ?")
}

/// What is due in one queue.
struct Queue<'s> {
    rows: Rows<'s>,
    request: &'s ClaimRequest,
    head: Option<Entry>,
}

impl<'s> Queue<'s> {
    fn new(rows: Rows<'s>, request: &'s ClaimRequest) -> Outcome<Self> {
        let mut queue = Self {
            rows,
            request,
            head: None,
        };
        queue.advance()?;
        Ok(queue)
    }

    fn advance(&mut self) -> Outcome<Option<Entry>> {
        let row = self.rows.next()?;
        let next = row.map(|row| Entry::read(row, self.request)).transpose()?;
        Ok(std::mem::replace(&mut self.head, next))
    }
}

/// The earliest of all queues.
fn next(queues: &mut [Queue<'_>]) -> Outcome<Option<Entry>> {
    let heads = queues.iter_mut().filter(|queue| queue.head.is_some());
    match heads.min_by_key(|queue| queue.head.as_ref().map(|entry| entry.at)) {
        Some(queue) => queue.advance(),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};
    use rusqlite::{Connection, StatementStatus};

    use super::*;
    use crate::store::{
        Share,
        sqlite::{connect, names::Database},
    };

    fn sqls(database: &Database) -> [String; 3] {
        [due_sql, owner_sql, held_sql].map(|sql| sql(&database.table))
    }

    /// A table with so many finished milestones, ten that are due and ten that a worker holds.
    fn table(finished: i64) -> (Database, Connection) {
        let database = Database::memory("_milestones_").unwrap();
        let connection = connect::writing(&database).unwrap();
        let fill = |count: i64, id: &str, columns: &str, values: &str, due: &[u8]| {
            let sql = format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
                 INSERT INTO {} (id, state, priority, due, doc, {columns}) SELECT '{id}' || i, '{id}', 0, ?, x'00', {values} FROM n",
                database.table
            );
            connection.execute(&sql, [due]).unwrap();
        };
        let due = doc! { "queue": "default", "method": "a", "at": DateTime::from_millis(5) };
        let due = doc! { "due": [due] }.to_vec().unwrap();
        fill(finished, "completed", "type", "'a'", &[]);
        fill(10, "ready", "next_queue, next_at", "'default', 5", &due);
        let held = "next_queue, next_at, owner, until";
        fill(10, "running", held, "'default', 900, 'other', 900", &due);
        connection.execute_batch("ANALYZE").unwrap();
        (database, connection)
    }

    /// How many steps SQLite makes for a look that finds so many, and how many of them are of a walk over the table.
    fn steps(database: &Database, connection: &Connection, now: i64, found: usize) -> (i32, i32) {
        let request = ClaimRequest {
            owner: "w".to_owned(),
            token: "t".to_owned(),
            limit: 10,
            now: DateTime::from_millis(now),
            until: DateTime::from_millis(1_000),
            queues: vec!["default".to_owned()],
            methods: vec!["a".to_owned()],
            expired_before: Some(DateTime::from_millis(now)),
            except: vec![],
            share: Share::all(),
            begins: None,
        };
        let reading = Reading {
            connection,
            database,
        };
        let mut count = 0;
        let shown = Scan::new(reading, &request).run(|_| {
            count += 1;
            Ok(true)
        });
        assert!(shown.is_ok());
        assert_eq!(count, found);
        let mut all = (0, 0);
        for sql in sqls(database) {
            let statement = connection.prepare_cached(&sql).unwrap();
            all.0 += statement.reset_status(StatementStatus::VmStep);
            all.1 += statement.reset_status(StatementStatus::FullscanStep);
        }
        all
    }

    /// F38: an idle look and one that finds something cost the same among few finished milestones and among many.
    #[test]
    fn f38_a_look_costs_the_same_among_many_finished_ones() {
        let [few, many] = [100, 20_000].map(|finished| {
            let (database, connection) = table(finished);
            for sql in sqls(&database) {
                let mut plan = connection
                    .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                    .unwrap();
                let parameters = vec!["default"; plan.parameter_count()];
                let steps = plan
                    .query_map(rusqlite::params_from_iter(parameters), |row| {
                        row.get::<_, String>("detail")
                    })
                    .unwrap();
                for step in steps {
                    let step = step.unwrap();
                    assert!(
                        step.starts_with("SEARCH") && step.contains("INDEX"),
                        "{step}"
                    );
                }
            }
            let idle = steps(&database, &connection, 1, 0);
            let claim = steps(&database, &connection, 500, 10);
            assert!(idle.0 > 0 && claim.0 > idle.0, "{idle:?} {claim:?}");
            (idle, claim)
        });
        assert_eq!(few, many);
        assert_eq!((few.0.1, few.1.1), (0, 0), "no walk over the table");
    }
}
