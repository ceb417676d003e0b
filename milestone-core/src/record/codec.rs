//! Between the typed record and the stored document.

use bson::{Bson, Document};

use super::{MilestoneRecord, SCHEMA};

/// A stored document that this version cannot read. It is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the milestone {id} cannot be read: {reason}")]
pub struct Unreadable {
    /// Its `_id`, as far as it could be read.
    pub id: String,
    /// Why.
    pub reason: String,
}

impl MilestoneRecord {
    /// Reads a stored document.
    ///
    /// # Errors
    /// [`Unreadable`] if a newer version wrote it, or somebody changed it by hand so that it makes no sense.
    pub fn from_document(document: Document) -> Result<Self, Unreadable> {
        let id = document
            .get("_id")
            .map_or_else(|| "without _id".to_owned(), id_text);
        let unreadable = |reason: String| Unreadable {
            id: id.clone(),
            reason,
        };
        match document.get("schema").and_then(as_i64) {
            Some(schema) if schema > i64::from(SCHEMA) => {
                return Err(unreadable(format!(
                    "its schema is {schema}, this version reads {SCHEMA} and lower: a newer one wrote it"
                )));
            }
            Some(_) => {}
            None => return Err(unreadable("it has no `schema`".to_owned())),
        }
        let record: Self = bson::deserialize_from_document(document)
            .map_err(|error| unreadable(error.to_string()))?;
        if record.actions.is_empty() {
            return Err(unreadable("it has no actions".to_owned()));
        }
        for (index, action) in record.actions.iter().enumerate() {
            if action.after.iter().any(|after| *after as usize >= index) {
                return Err(unreadable(format!(
                    "`actions.{index}.after` names an action that does not come before it"
                )));
            }
        }
        Ok(record)
    }

    /// Reads a stored document from its bytes.
    ///
    /// # Errors
    /// As [`MilestoneRecord::from_document`].
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Unreadable> {
        let document = Document::from_reader(bytes).map_err(|error| Unreadable {
            id: "unknown".to_owned(),
            reason: error.to_string(),
        })?;
        Self::from_document(document)
    }

    /// The document to store.
    ///
    /// # Errors
    /// If BSON cannot hold it, which only a value can cause that was not made by BSON's own serializer.
    pub fn to_document(&self) -> Result<Document, bson::error::Error> {
        bson::serialize_to_document(self)
    }
}

fn id_text(id: &Bson) -> String {
    match id {
        Bson::ObjectId(id) => id.to_string(),
        Bson::String(id) => id.clone(),
        other => other.to_string(),
    }
}

fn as_i64(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(value) => Some(i64::from(*value)),
        Bson::Int64(value) => Some(*value),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "mongosh writes small whole numbers as doubles"
        )]
        Bson::Double(value) => Some(*value as i64),
        _ => None,
    }
}
