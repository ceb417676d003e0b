//! Raw SQLite.

use std::path::Path;

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc, oid::ObjectId};
use milestone_runtime::{Runtime, store::mongodb::DEFAULT_COLLECTION};
use rusqlite::{Connection, params};

use crate::conditions::BATCH;

/// A connection to a file with the runtime's table, indexes and settings.
pub(crate) struct Embedded(Connection);

/// One milestone: its row after each of its writes.
pub(crate) struct Rows(Vec<Row>);

/// What the runtime stores of a document: the columns for search, and the document.
struct Row {
    key: String,
    kind: Option<String>,
    state: Option<String>,
    queue: Option<String>,
    at: Option<i64>,
    owner: Option<String>,
    until: Option<i64>,
    priority: i64,
    due: Option<Vec<u8>>,
    document: Vec<u8>,
}

impl Embedded {
    pub(crate) async fn open(file: &Path) -> Result<Self> {
        // It makes the table and its indexes.
        let uri = format!("sqlite:{}", file.display());
        drop(Runtime::builder(uri).client().build().await?);
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON",
        )?;
        Ok(Self(connection))
    }

    /// Many milestones in batches: a transaction of inserts for each batch, then one for each of its updates.
    pub(crate) fn in_batches(&mut self, milestones: &[Rows]) -> Result<()> {
        for batch in milestones.chunks(BATCH) {
            let writes = batch.iter().map(|rows| rows.0.len()).max().unwrap_or(0);
            for write in 0..writes {
                let rows = batch.iter().filter_map(|rows| rows.0.get(write));
                self.transaction(rows, write == 0)?;
            }
        }
        Ok(())
    }

    /// All writes of one milestone, each a transaction.
    pub(crate) fn one_by_one(&mut self, milestone: &Rows) -> Result<()> {
        for (write, row) in milestone.0.iter().enumerate() {
            self.transaction([row], write == 0)?;
        }
        Ok(())
    }

    fn transaction<'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a Row>,
        insert: bool,
    ) -> Result<()> {
        let sql = if insert {
            format!(
                "INSERT INTO \"{DEFAULT_COLLECTION}\" (type, state, next_queue, next_at, owner, until, priority, expire_at, due, doc, id) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)"
            )
        } else {
            format!(
                "UPDATE \"{DEFAULT_COLLECTION}\" SET type = ?, state = ?, next_queue = ?, next_at = ?, owner = ?, until = ?, priority = ?, \
                 due = ?, doc = ? WHERE id = ?"
            )
        };
        self.0.execute_batch("BEGIN IMMEDIATE")?;
        {
            let mut statement = self.0.prepare_cached(&sql)?;
            for row in rows {
                let changed = statement.execute(params![
                    row.kind,
                    row.state,
                    row.queue,
                    row.at,
                    row.owner,
                    row.until,
                    row.priority,
                    row.due,
                    row.document,
                    row.key
                ])?;
                anyhow::ensure!(changed == 1, "a row of the floor was not written");
            }
        }
        self.0.execute_batch("COMMIT")?;
        Ok(())
    }
}

impl Rows {
    /// The rows of a milestone like the one whose states these are, with an id of its own.
    pub(crate) fn like(states: &[Document]) -> Result<Self> {
        let id = ObjectId::new();
        let rows = states.iter().map(|state| {
            let mut document = state.clone();
            document.insert("_id", id);
            Row::new(id, &document)
        });
        Ok(Self(rows.collect::<Result<_>>()?))
    }
}

impl Row {
    fn new(id: ObjectId, document: &Document) -> Result<Self> {
        let text = |document: &Document, key: &str| document.get_str(key).ok().map(str::to_owned);
        let date = |document: &Document, key: &str| {
            document
                .get_datetime(key)
                .ok()
                .map(|date| date.timestamp_millis())
        };
        let next = document.get_document("next").ok();
        let lease = document.get_document("lease").ok();
        let due = document
            .get_array("due")
            .ok()
            .map(|due| doc! { "due": due.clone() }.to_vec())
            .transpose()?;
        Ok(Self {
            key: format!("x{id}"),
            kind: text(document, "type"),
            state: text(document, "state"),
            queue: next.and_then(|next| text(next, "queue")),
            at: next.and_then(|next| date(next, "at")),
            owner: lease.and_then(|lease| text(lease, "owner")),
            until: lease.and_then(|lease| date(lease, "until")),
            priority: document
                .get("priority")
                .and_then(Bson::as_i64)
                .unwrap_or_default(),
            due,
            document: document.to_vec().context("a document of the floor")?,
        })
    }
}
