//! One milestone in its row: the document, and the columns for search that are taken from it.

use bson::{Bson, Document, doc};
use milestone_core::record::{MilestoneId, Unreadable};
use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};

use super::{
    super::document::integer, encode::encode, errors::Outcome, names::Database, session::Session,
};

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

/// A row, ready to be written.
pub(super) struct Row {
    key: String,
    kind: Option<String>,
    state: Option<String>,
    next: Option<(String, i64)>,
    lease: Option<(String, i64)>,
    priority: i64,
    expire_at: Option<i64>,
    due: Option<Vec<u8>>,
    document: Vec<u8>,
}

impl Row {
    /// The row of a document.
    ///
    /// # Errors
    /// `Refused` if the document is too large or too deep.
    pub(super) fn new(id: &MilestoneId, document: &Document) -> Result<Self, super::StoreError> {
        let text = |value: Option<&Bson>| value.and_then(Bson::as_str).map(str::to_owned);
        let date = |value: Option<&Bson>| {
            value
                .and_then(Bson::as_datetime)
                .map(|date| date.timestamp_millis())
        };
        let inner = |name: &str| document.get(name).and_then(Bson::as_document);
        let next =
            inner("next").and_then(|next| Some((text(next.get("queue"))?, date(next.get("at"))?)));
        let lease = inner("lease")
            .and_then(|lease| Some((text(lease.get("owner"))?, date(lease.get("until"))?)));
        let due = document.get("due").and_then(Bson::as_array);
        Ok(Self {
            key: key(id),
            kind: text(document.get("type")),
            state: text(document.get("state")),
            next,
            lease,
            priority: integer(document, "priority").unwrap_or_default(),
            expire_at: date(document.get("expireAt")),
            due: due
                .map(|due| encode(&doc! { "due": due.clone() }))
                .transpose()?,
            document: encode(document)?,
        })
    }

    /// Writes it where no row of its id is, and tells whether it did.
    pub(super) fn insert(&self, session: &Session<'_>) -> Outcome<bool> {
        self.write(session, "ON CONFLICT (id) DO NOTHING")
    }

    /// Writes it in the place of the row of its id.
    pub(super) fn replace(&self, session: &Session<'_>) -> Outcome<()> {
        let columns = COLUMNS.map(|column| format!("{column} = excluded.{column}"));
        self.write(
            session,
            &format!("ON CONFLICT (id) DO UPDATE SET {}", columns.join(", ")),
        )?;
        Ok(())
    }

    fn write(&self, session: &Session<'_>, conflict: &str) -> Outcome<bool> {
        let sql = format!(
            "INSERT INTO {} (id, {}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {conflict}",
            session.database.table,
            COLUMNS.join(", ")
        );
        let (queue, at) = self.next.as_ref().map(|(queue, at)| (queue, at)).unzip();
        let (owner, until) = self
            .lease
            .as_ref()
            .map(|(owner, until)| (owner, until))
            .unzip();
        let values = params![
            self.key,
            self.kind,
            self.state,
            queue,
            at,
            owner,
            until,
            self.priority,
            self.expire_at,
            self.due,
            self.document
        ];
        Ok(session.connection.prepare_cached(&sql)?.execute(values)? > 0)
    }
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
    let sql = format!("SELECT doc FROM {} WHERE id = ?", database.table);
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement
        .query_row([key(id)], |row| Ok(decode(id, row.get_ref(0)?)))
        .optional()?;
    Ok(match found {
        None => Stored::Missing,
        Some(Err(unreadable)) => Stored::Broken(unreadable),
        Some(Ok(document)) => Stored::Document(document),
    })
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
    let sql = format!("DELETE FROM {} WHERE id = ?", session.database.table);
    Ok(session
        .connection
        .prepare_cached(&sql)?
        .execute([key(id)])?
        > 0)
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
