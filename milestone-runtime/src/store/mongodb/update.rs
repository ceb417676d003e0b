//! The `update` command with many statements, each for a document of its own.

use std::ops::Range;

use bson::{Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use mongodb::error::Error;

use super::connect::Connection;

/// The largest document of MongoDB, and so the largest statement.
pub(super) const MAX_DOCUMENT: usize = 16 * 1024 * 1024;

/// A command that is written out is one document of 16 MiB and a little; this leaves room for what stands around the statements.
const MAX_COMMAND: usize = 12 * 1024 * 1024;

/// The most statements of one command.
const MAX_STATEMENTS: usize = 100_000;

/// One statement in the form in which it is sent.
pub(super) type Statement = RawDocumentBuf;

/// A statement that changes the one document that the filter matches.
pub(super) fn statement(
    filter: &Document,
    update: &RawDocument,
) -> Result<Statement, bson::error::Error> {
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), &raw(filter)?);
    statement.append(cstr!("u"), update);
    Ok(statement)
}

/// A statement in the form in which it is sent.
pub(super) fn raw(statement: &Document) -> Result<Statement, bson::error::Error> {
    RawDocumentBuf::try_from(statement)
}

/// What the server said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// How many documents were matched.
    pub(super) matched: usize,
    /// Which statements failed.
    pub(super) write_errors: Vec<WriteError>,
    /// Whether, and why, it is not known that a majority has it.
    pub(super) concern: Option<String>,
}

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteError {
    pub(super) index: usize,
    pub(super) code: i32,
    pub(super) message: String,
}

impl Reply {
    fn read(reply: &Document) -> Self {
        let write_errors = reply
            .get_array("writeErrors")
            .map_or(&[][..], Vec::as_slice);
        let concern = reply.get_document("writeConcernError").ok();
        Self {
            matched: reply.get("n").map_or(0, number),
            write_errors: write_errors
                .iter()
                .filter_map(Bson::as_document)
                .map(WriteError::read)
                .collect(),
            concern: concern.map(|concern| text(concern, "errmsg")),
        }
    }

    /// Whether all of so many statements were carried out, and a majority has them.
    pub(super) fn is_complete(&self, statements: usize) -> bool {
        self.matched == statements && self.failure().is_none()
    }

    /// What went wrong, if anything did.
    pub(super) fn failure(&self) -> Option<&str> {
        self.concern.as_deref().or_else(|| {
            self.write_errors
                .first()
                .map(|error| error.message.as_str())
        })
    }
}

impl WriteError {
    /// For people.
    pub(super) fn text(&self) -> String {
        format!("{} (code {})", self.message, self.code)
    }

    fn read(error: &Document) -> Self {
        Self {
            index: error.get("index").map_or(0, number),
            code: error
                .get("code")
                .map_or(0, |code| i32::try_from(number(code)).unwrap_or(0)),
            message: text(error, "errmsg"),
        }
    }
}

fn text(document: &Document, key: &str) -> String {
    document
        .get_str(key)
        .unwrap_or("without a message")
        .to_owned()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and codes are small and positive"
)]
fn number(value: &Bson) -> usize {
    match value {
        Bson::Int32(number) => *number as usize,
        Bson::Int64(number) => *number as usize,
        Bson::Double(number) => *number as usize,
        _ => 0,
    }
}

/// Divides statements into commands that keep the limits.
pub(super) fn commands(sizes: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut commands: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, size) in sizes.into_iter().enumerate() {
        match commands.last_mut() {
            Some(last) if bytes + size <= MAX_COMMAND && last.len() < MAX_STATEMENTS => {
                last.end = index + 1;
                bytes += size;
            }
            _ => {
                commands.push(index..index + 1);
                bytes = size;
            }
        }
    }
    commands
}

/// Sends one command. Each statement is carried out for itself, and the server goes on behind one that fails.
pub(super) async fn send<'a>(
    connection: &Connection,
    statements: impl IntoIterator<Item = &'a Statement>,
) -> Result<Reply, Error> {
    let mut updates = RawArrayBuf::new();
    for statement in statements {
        updates.push(statement);
    }
    let concern = RawDocumentBuf::try_from(&connection.write_concern())?;
    let command = rawdoc! {
        "update": connection.milestones.name(),
        "updates": updates,
        "ordered": false,
        "writeConcern": concern,
    };
    connection
        .database
        .run_raw_command(command)
        .await
        .map(|reply| Reply::read(&reply))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_statement_is_a_filter_and_an_update() {
        let statement = statement(&doc! { "_id": 1 }, &rawdoc! { "$set": { "a": 2 } }).unwrap();
        assert_eq!(
            Document::try_from(&*statement).unwrap(),
            doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 2 } } }
        );
    }

    #[test]
    fn commands_keep_the_limits() {
        const MIB: usize = 1024 * 1024;
        assert_eq!(commands([]), []);
        assert_eq!(commands([100, 100, MIB * 15]), [0..2, 2..3]);
        assert_eq!(commands([8 * MIB, 4 * MIB, 1]), [0..2, 2..3]);
        assert_eq!(commands([1, 16 * MIB, 1]), [0..1, 1..2, 2..3]);
        assert_eq!(commands(vec![1; 100_001]), [0..100_000, 100_000..100_001]);
    }

    #[test]
    fn a_reply_tells_which_failed() {
        let reply = Reply::read(&doc! {
            "n": 2, "nModified": 1, "ok": 1.0,
            "writeErrors": [{ "index": 1, "code": 17419, "errmsg": "too large" }],
            "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" },
        });
        let too_large = WriteError {
            index: 1,
            code: 17419,
            message: "too large".to_owned(),
        };
        let concern = Some("waiting for replication timed out".to_owned());
        assert_eq!(
            reply,
            Reply {
                matched: 2,
                write_errors: vec![too_large],
                concern
            }
        );
        assert!(!reply.is_complete(2));
        assert!(Reply::read(&doc! { "n": 2, "ok": 1.0 }).is_complete(2));
        assert!(!Reply::read(&doc! { "n": 1, "ok": 1.0 }).is_complete(2));
    }
}
