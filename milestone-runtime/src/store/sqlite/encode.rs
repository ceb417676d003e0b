//! Between documents and bytes, within the limits that a MongoDB server has too: a milestone can be moved from one store to the other.

use bson::Document;
use milestone_core::record::MilestoneRecord;

use super::super::{
    StoreError,
    document::{MAX_DOCUMENT, MAX_LEVELS, is_record_too_deep, is_too_deep},
};

/// The bytes to store of a document.
pub(super) fn document(document: &Document) -> Result<Vec<u8>, StoreError> {
    check_levels(is_too_deep(document))?;
    check_size(
        document
            .to_vec()
            .map_err(|error| refused(error.to_string()))?,
    )
}

/// The bytes to store of a record.
pub(super) fn record(record: &MilestoneRecord) -> Result<Vec<u8>, StoreError> {
    check_levels(is_record_too_deep(record))?;
    check_size(
        record
            .to_vec()
            .map_err(|error| refused(error.to_string()))?,
    )
}

/// Refuses a document that has too many levels.
pub(super) fn check_levels(are_too_many: bool) -> Result<(), StoreError> {
    if are_too_many {
        return Err(refused(format!(
            "the document has more than {MAX_LEVELS} levels"
        )));
    }
    Ok(())
}

/// Refuses a document that is too large.
pub(super) fn check_size(bytes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    if bytes.len() > MAX_DOCUMENT {
        return Err(refused(format!(
            "the document has {} bytes, the limit is {MAX_DOCUMENT}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

fn refused(reason: String) -> StoreError {
    StoreError::Refused { reason }
}
