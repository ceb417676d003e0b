//! Finding what is due: by the columns alone, without a look at the documents.

use std::{collections::HashSet, path::PathBuf};

use bson::{Bson, Document};
use milestone_core::record::MilestoneId;
use rusqlite::{CachedStatement, OptionalExtension, Row, Rows};

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

/// The columns of a row.
struct Entry {
    key: String,
    at: i64,
    until: Option<i64>,
    due: Option<Vec<u8>>,
    priority: i64,
}

impl Entry {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get(0)?,
            at: row.get(1)?,
            until: row.get(2)?,
            due: row.get(3)?,
            priority: row.get(4)?,
        })
    }

    fn found(&self) -> Found {
        Found {
            id: row::id(&self.key),
            priority: self.priority,
        }
    }

    fn due(&self) -> impl Iterator<Item = Document> {
        let document = self
            .due
            .as_ref()
            .and_then(|bytes| Document::from_reader(&bytes[..]).ok());
        let list = document.and_then(|mut document| document.remove("due"));
        let items = match list {
            Some(Bson::Array(items)) => items,
            _ => Vec::new(),
        };
        items.into_iter().filter_map(|item| match item {
            Bson::Document(document) => Some(document),
            _ => None,
        })
    }
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
            queues.push(Queue::new(
                statement.query((queue, self.request.now.timestamp_millis()))?,
            )?);
        }
        while let Some(entry) = next(&mut queues)? {
            let is_free = match (entry.until, self.request.expired_before) {
                (None, _) => true,
                (Some(until), Some(before)) => until < before.timestamp_millis(),
                (Some(_), None) => false,
            };
            if !is_free || self.except.contains(&entry.key) || !self.is_due(&entry) {
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
        let sql = format!(
            "SELECT id, next_at, until, due, priority FROM {} WHERE next_queue = ? AND next_at <= ? ORDER BY next_at",
            self.reading.database.table
        );
        Ok(self.reading.connection.prepare_cached(&sql)?)
    }

    /// Whether one of the entries is due that the worker can move on.
    fn is_due(&self, entry: &Entry) -> bool {
        entry.due().any(|due| {
            let at = due
                .get_datetime("at")
                .is_ok_and(|at| *at <= self.request.now);
            at && is_served(&due, self.request)
        })
    }

    /// The dead workers that hold milestones.
    fn dead(&self) -> Outcome<Vec<String>> {
        let mut dead = Vec::new();
        let Some(folder) = &self.folder else {
            return Ok(dead);
        };
        // From one owner to the next by the index, past all that each of them holds.
        let sql = format!(
            "SELECT min(owner) FROM {} WHERE owner > ?",
            self.reading.database.table
        );
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
        let sql = format!(
            "SELECT id, ifnull(next_at, 0), until, due, priority FROM {} WHERE owner = ?",
            self.reading.database.table
        );
        let mut statement = self.reading.connection.prepare_cached(&sql)?;
        let rows = statement.query_map([owner], Entry::read)?;
        let mut held = Vec::new();
        for entry in rows {
            let entry = entry?;
            if !self.except.contains(&entry.key)
                && entry.due().any(|due| is_served(&due, self.request))
            {
                held.push(entry);
            }
        }
        Ok(held)
    }
}

/// What is due in one queue.
struct Queue<'s> {
    rows: Rows<'s>,
    head: Option<Entry>,
}

impl<'s> Queue<'s> {
    fn new(rows: Rows<'s>) -> Outcome<Self> {
        let mut queue = Self { rows, head: None };
        queue.advance()?;
        Ok(queue)
    }

    fn advance(&mut self) -> Outcome<Option<Entry>> {
        let next = self.rows.next()?.map(Entry::read).transpose()?;
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
