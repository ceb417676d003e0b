//! The `_id` of the document that changes. Everything here is pure.

use bson::{Bson, Document, doc};

use super::FieldSyncError;

/// One document has that `_id`: not those that an operator or a pattern finds, which may come from a text that somebody else has written.
pub(super) fn check_id(name: &str, id: &Bson) -> Result<(), FieldSyncError> {
    let reason = match id {
        Bson::Document(id) if id.keys().any(|key| key.starts_with('$')) => "it is an operator",
        Bson::RegularExpression(_) => "it is a regular expression",
        Bson::Array(_) => "it is an array",
        _ => return Ok(()),
    };
    Err(FieldSyncError::Id {
        name: name.to_owned(),
        id: Box::new(id.clone()),
        reason,
    })
}

/// The document with that `_id`, whatever that is: `$eq` takes it as it is.
pub(super) fn of(id: &Bson) -> Document {
    doc! { "_id": { "$eq": id.clone() } }
}

/// That document, where more is so.
pub(super) fn with(id: &Bson, more: Document) -> Document {
    let mut filter = of(id);
    filter.extend(more);
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_value_and_finds_no_other_document() {
        let [pattern, options] = ["a", ""].map(|text| bson::raw::CString::try_from(text).unwrap());
        let wrong: [Bson; 4] = [
            doc! { "$gt": 0 }.into(),
            doc! { "region": "eu", "$ne": 7 }.into(),
            bson::Regex { pattern, options }.into(),
            vec![7].into(),
        ];
        for id in wrong {
            let error = check_id("n", &id).unwrap_err();
            assert_eq!(error.code(), "field_sync_id");
        }
        let good: [Bson; 3] = [
            7.into(),
            "$gt".into(),
            doc! { "region": "eu", "of": { "$gt": 0 } }.into(),
        ];
        for id in good {
            assert!(check_id("n", &id).is_ok(), "{id}");
        }
        let expected = doc! { "_id": { "$eq": 7 }, "a": 1 };
        assert_eq!(with(&Bson::from(7), doc! { "a": 1 }), expected);
    }
}
