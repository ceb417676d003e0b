//! The tables, and the check that they are as they must be.

use rusqlite::{Connection, OptionalExtension};

use super::{
    super::StoreError,
    errors::Outcome,
    names::{Database, quoted},
};

/// The version of the tables. A file with a higher one is not touched.
const LAYOUT: i64 = 1;

/// The versions of all collections in the file. SQLite's own `user_version` is left to the application.
const LAYOUTS: &str = "CREATE TABLE IF NOT EXISTS _milestone_layout (collection TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL)";

struct Object {
    is_index: bool,
    name: String,
    /// What comes behind `CREATE TABLE <name>`, or before and behind the name of an index.
    body: String,
}

impl Object {
    fn create(&self) -> String {
        let kind = if self.is_index { "INDEX" } else { "TABLE" };
        format!("CREATE {kind} {} {}", quoted(&self.name), self.body)
    }
}

/// The small columns stand before the document, so that a search reads no page of a document.
fn objects(database: &Database) -> [Object; 5] {
    let name = |part: &str| format!("{}{part}", database.collection);
    let table = |part: &str, body: &str| Object {
        is_index: false,
        name: name(part),
        body: body.to_owned(),
    };
    let index = |part: &str, columns: &str, column: &str| Object {
        is_index: true,
        name: name(part),
        body: format!(
            "ON {} ({columns}) WHERE {column} IS NOT NULL",
            database.table
        ),
    };
    [
        table(
            "",
            "(id TEXT PRIMARY KEY NOT NULL, type TEXT, state TEXT, next_queue TEXT, next_at INTEGER, owner TEXT, until INTEGER, \
            priority INTEGER NOT NULL, expire_at INTEGER, due BLOB, doc BLOB NOT NULL)",
        ),
        table(
            ".workers",
            "(id TEXT PRIMARY KEY NOT NULL, doc BLOB NOT NULL)",
        ),
        index(".next", "next_queue, next_at", "next_at"),
        index(".owner", "owner", "owner"),
        index(".expire", "expire_at", "expire_at"),
    ]
}

/// Makes the tables and indexes that are missing. The connection is in a transaction that may write.
pub(super) fn create(connection: &Connection, database: &Database) -> Outcome<()> {
    connection.execute_batch(LAYOUTS)?;
    connection.execute(
        "INSERT INTO _milestone_layout (collection, version) VALUES (?, ?) ON CONFLICT (collection) DO NOTHING",
        (&database.collection, LAYOUT),
    )?;
    for object in objects(database) {
        if definition(connection, &object)?.is_none() {
            connection.execute_batch(&object.create())?;
        }
    }
    Ok(())
}

/// The names of what is missing.
pub(super) fn lacks(connection: &Connection, database: &Database) -> Outcome<Vec<String>> {
    let mut lacks = Vec::new();
    for object in objects(database) {
        if definition(connection, &object)?.is_none() {
            lacks.push(object.name);
        }
    }
    Ok(lacks)
}

/// Tells whether all is there.
///
/// # Errors
/// If something is there that is not as it must be, with its name.
pub(super) fn is_complete(connection: &Connection, database: &Database) -> Outcome<bool> {
    let unusable = |reason: String| StoreError::Unsupported {
        server: database.place.to_string(),
        reason,
    };
    let version = version(connection, database)?;
    if let Some(version) = version
        && version > LAYOUT
    {
        return Err(unusable(format!(
            "its tables have the layout {version}, this version knows {LAYOUT} and lower: a newer one wrote them"
        ))
        .into());
    }
    let mut complete = version.is_some();
    for object in objects(database) {
        match definition(connection, &object)? {
            None => complete = false,
            Some(sql) if sql == object.create() => {}
            Some(sql) if object.is_index => {
                return Err(StoreError::Index {
                    collection: database.collection.clone(),
                    reason: format!(
                        "it is `{sql}`; remove it, and it is made anew as `{}`",
                        object.create()
                    ),
                    name: object.name,
                }
                .into());
            }
            Some(sql) => {
                let name = object.name;
                return Err(unusable(format!(
                    "there is another table of the name `{name}` in it: `{sql}`; give another collection's name"
                ))
                .into());
            }
        }
    }
    Ok(complete)
}

fn version(connection: &Connection, database: &Database) -> Outcome<Option<i64>> {
    let layouts = connection
        .query_row(
            "SELECT 1 FROM sqlite_master WHERE name = '_milestone_layout'",
            [],
            |_| Ok(()),
        )
        .optional()?;
    if layouts.is_none() {
        return Ok(None);
    }
    let sql = "SELECT version FROM _milestone_layout WHERE collection = ?";
    Ok(connection
        .query_row(sql, [&database.collection], |row| row.get(0))
        .optional()?)
}

fn definition(connection: &Connection, object: &Object) -> Outcome<Option<String>> {
    let sql = "SELECT ifnull(sql, '') FROM sqlite_master WHERE lower(name) = lower(?)";
    Ok(connection
        .query_row(sql, [&object.name], |row| row.get(0))
        .optional()?)
}
