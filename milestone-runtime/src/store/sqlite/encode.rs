//! Between documents and bytes, within the limits that a MongoDB server has too: a milestone can be moved from one store to the other.

use bson::{Bson, Document};

use super::super::StoreError;

/// The largest document, in bytes.
const MAX_DOCUMENT: usize = 16 << 20;

/// The most levels of a document.
const MAX_LEVELS: usize = 180;

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

/// Without recursion, since what is too deep may be much too deep.
fn is_too_deep(document: &Document) -> bool {
    let mut rest: Vec<(&Bson, usize)> = document.values().map(|value| (value, 1)).collect();
    while let Some((value, level)) = rest.pop() {
        if level > MAX_LEVELS {
            return true;
        }
        match value {
            Bson::Document(inner) => rest.extend(inner.values().map(|value| (value, level + 1))),
            Bson::Array(items) => rest.extend(items.iter().map(|value| (value, level + 1))),
            Bson::JavaScriptCodeWithScope(code) => {
                rest.extend(code.scope.values().map(|value| (value, level + 1)));
            }
            _ => {}
        }
    }
    false
}
