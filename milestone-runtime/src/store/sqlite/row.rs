//! One milestone in its row: the document, and the columns for search that are taken from it.

use bson::{DateTime, Document, RawArray, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr};
use milestone_core::record::{MilestoneId, Unreadable};
use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};

use super::{encode, errors::Outcome, names::Database, session::Session};

/// The columns behind the id, in the order of the table.
const COLUMNS: [&str; 10] = [
    "type",
    "state",
    "next_queue",
    "next_at",
    "owner",
    "until",
    "priority",
    "expire_at",
    "due",
    "doc",
];

/// The statements for the rows of a table.
#[derive(Debug)]
pub(super) struct Statements {
    read: String,
    insert: String,
    replace: String,
    step: String,
    remove: String,
}

impl Statements {
    pub(super) fn of(table: &str) -> Self {
        let insert = format!(
            "INSERT INTO {table} (id, {}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            COLUMNS.join(", ")
        );
        let columns = COLUMNS.map(|column| format!("{column} = excluded.{column}"));
        Self {
            read: format!("SELECT rowid, doc FROM {table} WHERE id = ?"),
            replace: format!(
                "{insert} ON CONFLICT (id) DO UPDATE SET {}",
                columns.join(", ")
            ),
            insert: format!("{insert} ON CONFLICT (id) DO NOTHING"),
            // No column of an index.
            step: format!("UPDATE {table} SET state = ?, due = ?, doc = ? WHERE rowid = ?"),
            remove: format!("DELETE FROM {table} WHERE id = ?"),
        }
    }
}

/// What stands at the top of an encoded document: for search, and to decide about a change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Top<'d> {
    kind: Option<&'d str>,
    state: Option<&'d str>,
    next: Option<(&'d str, i64)>,
    lease: Option<(&'d str, i64)>,
    priority: i64,
    expire_at: Option<i64>,
    due: Option<&'d RawArray>,
    pub(super) token: Option<&'d str>,
    pub(super) rev: Option<i64>,
    pub(super) mail: i64,
}

impl<'d> Top<'d> {
    /// Reads it. Nothing: the bytes are no document.
    pub(super) fn of(document: &'d [u8]) -> Option<Self> {
        let document = RawDocument::from_bytes(document).ok()?;
        let integer = |value: RawBsonRef<'_>| value.as_i64().or(value.as_i32().map(i64::from));
        let mut top = Self::default();
        for field in document {
            let (key, value) = field.ok()?;
            match key.as_str() {
                "type" => top.kind = value.as_str(),
                "state" => top.state = value.as_str(),
                "next" => top.next = pair(value, "queue", "at"),
                "lease" => {
                    top.lease = pair(value, "owner", "until");
                    let lease = value.as_document();
                    top.token = lease.and_then(|lease| lease.get_str("token").ok());
                }
                "priority" => top.priority = integer(value).unwrap_or_default(),
                "expireAt" => top.expire_at = value.as_datetime().map(DateTime::timestamp_millis),
                "due" => top.due = value.as_array(),
                "rev" => top.rev = integer(value),
                "mail" => top.mail = integer(value).unwrap_or_default(),
                _ => {}
            }
        }
        Some(top)
    }

    /// Whether both stand at the same places of all indexes.
    pub(super) fn is_indexed_as(&self, other: &Self) -> bool {
        let indexed = |top: &Self| (top.next, top.lease, top.expire_at);
        indexed(self) == indexed(other)
            && self.kind == other.kind
            && self.priority == other.priority
    }

    fn due(&self) -> Option<Vec<u8>> {
        let due = self.due?;
        let mut list = RawDocumentBuf::new();
        list.append(cstr!("due"), due);
        Some(list.into_bytes())
    }
}

/// A name and a time.
fn pair<'d>(value: RawBsonRef<'d>, name: &str, time: &str) -> Option<(&'d str, i64)> {
    let document = value.as_document()?;
    let at = document.get_datetime(time).ok()?.timestamp_millis();
    Some((document.get_str(name).ok()?, at))
}

/// A row, ready to be written.
pub(super) struct Row {
    key: String,
    document: Vec<u8>,
}

impl Row {
    /// The row of a document.
    ///
    /// # Errors
    /// `Refused` if the document is too large or too deep.
    pub(super) fn new(id: &MilestoneId, document: &Document) -> Result<Self, super::StoreError> {
        Ok(Self::encoded(id, encode::document(document)?))
    }

    /// The row of a document that is encoded, within the limits.
    pub(super) fn encoded(id: &MilestoneId, document: Vec<u8>) -> Self {
        Self {
            key: key(id),
            document,
        }
    }

    /// Writes it where no row of its id is, and tells whether it did.
    pub(super) fn insert(&self, session: &Session<'_>) -> Outcome<bool> {
        self.write(session, &session.database.rows.insert)
    }

    /// Writes it in the place of the row of its id.
    pub(super) fn replace(&self, session: &Session<'_>) -> Outcome<()> {
        self.write(session, &session.database.rows.replace)?;
        Ok(())
    }

    fn write(&self, session: &Session<'_>, sql: &str) -> Outcome<bool> {
        let top = Top::of(&self.document).unwrap_or_default();
        let (queue, at) = top.next.unzip();
        let (owner, until) = top.lease.unzip();
        let values = params![
            self.key,
            top.kind,
            top.state,
            queue,
            at,
            owner,
            until,
            top.priority,
            top.expire_at,
            top.due(),
            self.document
        ];
        Ok(session.connection.prepare_cached(sql)?.execute(values)? > 0)
    }
}

/// Writes a document in the place of one that stands at the same places of all indexes.
pub(super) fn step(
    session: &Session<'_>,
    rowid: i64,
    document: &[u8],
    top: &Top<'_>,
) -> Outcome<()> {
    let mut statement = session
        .connection
        .prepare_cached(&session.database.rows.step)?;
    statement.execute(params![top.state, top.due(), document, rowid])?;
    Ok(())
}

/// What a store finds for an id.
pub(super) enum Stored {
    Missing,
    /// No BSON.
    Broken(Unreadable),
    Document(Document),
}

/// Reads the document of an id.
pub(super) fn read(
    connection: &Connection,
    database: &Database,
    id: &MilestoneId,
) -> Outcome<Stored> {
    let found = look(connection, database, id, |_, column| decode(id, column))?;
    Ok(match found {
        None => Stored::Missing,
        Some(Err(unreadable)) => Stored::Broken(unreadable),
        Some(Ok(document)) => Stored::Document(document),
    })
}

/// Shows the row of an id: its number, and the column of the document. Nothing: there is none.
pub(super) fn look<T>(
    connection: &Connection,
    database: &Database,
    id: &MilestoneId,
    show: impl FnOnce(i64, ValueRef<'_>) -> T,
) -> Outcome<Option<T>> {
    let mut statement = connection.prepare_cached(&database.rows.read)?;
    let shown = statement.query_row([key(id)], |row| Ok(show(row.get(0)?, row.get_ref(1)?)));
    Ok(shown.optional()?)
}

/// Reads a column as a document.
pub(super) fn decode(id: &MilestoneId, column: ValueRef<'_>) -> Result<Document, Unreadable> {
    let unreadable = |reason: String| Unreadable {
        id: id.to_string(),
        reason,
    };
    let bytes = column
        .as_blob()
        .map_err(|error| unreadable(error.to_string()))?;
    Document::from_reader(bytes).map_err(|error| unreadable(error.to_string()))
}

/// Removes the row of an id, and tells whether there was one.
pub(super) fn remove(session: &Session<'_>, id: &MilestoneId) -> Outcome<bool> {
    let mut statement = session
        .connection
        .prepare_cached(&session.database.rows.remove)?;
    Ok(statement.execute([key(id)])? > 0)
}

/// An id as text that sorts as MongoDB sorts ids: all strings come before all `ObjectId`s.
pub(super) fn key(id: &MilestoneId) -> String {
    match id {
        MilestoneId::String(id) => format!("s{id}"),
        MilestoneId::ObjectId(id) => format!("x{id}"),
    }
}

/// The id of a key.
pub(super) fn id(key: &str) -> MilestoneId {
    match key.split_at_checked(1) {
        Some(("x", hex)) => hex
            .parse()
            .map_or_else(|_| hex.into(), MilestoneId::ObjectId),
        Some((_, text)) => text.into(),
        None => key.into(),
    }
}
