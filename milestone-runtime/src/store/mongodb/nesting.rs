//! How deep documents are nested. A server refuses a whole command for one value that is too deep, so it must not get there.

use bson::{Bson, Document};
use milestone_core::{patch::Patch, record::MilestoneRecord};

use crate::store::document::user_values;

/// The most levels of a stored document.
const MAX_LEVELS: usize = 180;

/// What stands around an update that does not stand around the value in its document: the command, the list of updates, the statement
/// and the operator, less the path that the operator names.
pub(super) const OF_UPDATES: usize = 4;

/// What stands around a command in the inbox: as [`OF_UPDATES`], the inbox and its modifier.
pub(super) const OF_COMMANDS: usize = OF_UPDATES + 2;

/// Why such a value is not stored.
pub(super) const TOO_DEEP: &str =
    "a document or a list in it is nested deeper than the 180 levels that MongoDB stores";

/// Whether a document has more levels than can be stored, with so many around it.
pub(super) fn is_too_deep(document: &Document, around: usize) -> bool {
    around >= MAX_LEVELS
        || document
            .values()
            .any(|value| goes_below(value, MAX_LEVELS - around - 1))
}

/// Whether the document of a record has more levels than can be stored.
pub(super) fn is_record_too_deep(record: &MilestoneRecord) -> bool {
    user_values(record).any(|(level, value)| goes_below(value, MAX_LEVELS - level))
}

/// Whether a patch, sent as an update, sets a value that has more levels than can be stored.
pub(super) fn is_patch_too_deep(patch: &Patch) -> bool {
    // The operator, and its fields.
    let left = MAX_LEVELS - OF_UPDATES - 2;
    patch.values().any(|(_, value)| goes_below(value, left))
}

/// Whether a value has more levels than `left`. It does not descend further than that.
fn goes_below(value: &Bson, left: usize) -> bool {
    let mut items: Box<dyn Iterator<Item = &Bson>> = match value {
        Bson::Document(document) => Box::new(document.values()),
        Bson::Array(items) => Box::new(items.iter()),
        Bson::JavaScriptCodeWithScope(code) => Box::new(code.scope.values()),
        _ => return false,
    };
    left == 0 || items.any(|item| goes_below(item, left - 1))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn nested(levels: usize) -> Document {
        (1..levels).fold(doc! { "x": 1 }, |inner, level| {
            if level % 2 == 0 {
                doc! { "x": inner }
            } else {
                doc! { "x": [inner] }
            }
        })
    }

    #[test]
    fn levels_are_counted() {
        let flat = |levels| (1..levels).fold(doc! {}, |inner, _| doc! { "x": inner });
        assert!(!is_too_deep(&flat(180), 0));
        assert!(is_too_deep(&flat(181), 0));
        assert!(!is_too_deep(&flat(176), 4));
        assert!(is_too_deep(&flat(177), 4));
        assert!(is_too_deep(&nested(150), 0));
        assert!(!is_too_deep(&doc! { "a": [1, { "b": 2 }] }, 0));
    }
}
