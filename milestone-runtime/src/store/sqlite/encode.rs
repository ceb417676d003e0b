//! Between documents and bytes, within the limits that a MongoDB server has too: a milestone can be moved from one store to the other.

use bson::Document;

use super::super::{
    StoreError,
    document::{MAX_DOCUMENT, MAX_LEVELS, is_too_deep},
};

/// The bytes to store.
pub(super) fn encode(document: &Document) -> Result<Vec<u8>, StoreError> {
    let refused = |reason: String| StoreError::Refused { reason };
    if is_too_deep(document) {
        return Err(refused(format!(
            "the document has more than {MAX_LEVELS} levels"
        )));
    }
    let bytes = document
        .to_vec()
        .map_err(|error| refused(error.to_string()))?;
    if bytes.len() > MAX_DOCUMENT {
        return Err(refused(format!(
            "the document has {} bytes, the limit is {MAX_DOCUMENT}",
            bytes.len()
        )));
    }
    Ok(bytes)
}
