//! A stored value in its encoded form, of which each attempt makes its own type.

use std::sync::OnceLock;

use bson::{Bson, Document, doc};
use serde::de::DeserializeOwned;

use super::extract::{from_bytes, from_value};

/// A value as it is stored. It is encoded once, and read from its bytes as often as it is asked for: no tree of it is copied, and none
/// is kept but where somebody looks at it.
#[derive(Debug)]
pub(crate) struct StoredValue {
    /// Of a document with the value in it; empty if BSON does not take it.
    bytes: Vec<u8>,
    tree: OnceLock<Bson>,
}

impl StoredValue {
    /// The name under which the value stands in its bytes.
    const KEY: &str = "value";

    pub(crate) fn new(value: &Bson) -> Self {
        let bytes = doc! { Self::KEY: value }.to_vec().unwrap_or_default();
        let tree = if bytes.is_empty() {
            OnceLock::from(value.clone())
        } else {
            OnceLock::new()
        };
        Self { bytes, tree }
    }

    /// Its size, in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// As a type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, bson::error::Error> {
        if self.bytes.is_empty() {
            return from_value(self.tree());
        }
        from_bytes(&self.bytes)
    }

    /// As a tree, which is kept from then on.
    pub(crate) fn tree(&self) -> &Bson {
        self.tree.get_or_init(|| self.decoded())
    }

    /// A tree of its own.
    pub(crate) fn to_tree(&self) -> Bson {
        self.tree.get().cloned().unwrap_or_else(|| self.decoded())
    }

    fn decoded(&self) -> Bson {
        let document = Document::from_reader(&self.bytes[..]).ok();
        document
            .and_then(|mut document| document.remove(Self::KEY))
            .unwrap_or(Bson::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Part {
        from: String,
    }

    #[test]
    fn it_is_read_as_a_type_and_as_a_tree() {
        let value =
            Bson::from(doc! { "from": "a", "amount": 5_i64, "$odd.key": { "": [1, null] } });
        let stored = StoredValue::new(&value);
        assert_eq!(stored.to_tree(), value);
        assert_eq!(*stored.tree(), value);
        assert_eq!(stored.read::<Bson>().unwrap(), value);
        assert_eq!(
            stored.read::<Part>().unwrap(),
            Part {
                from: "a".to_owned()
            }
        );
        assert!(stored.read::<i64>().is_err());
        assert_eq!(
            StoredValue::new(&Bson::Null).read::<Option<i64>>().unwrap(),
            None
        );
    }

    #[test]
    fn a_value_that_cannot_be_encoded_is_kept_as_it_is() {
        let value = Bson::from(doc! { "a\0b": 1 });
        let stored = StoredValue::new(&value);
        assert_eq!(stored.to_tree(), value);
        assert!(stored.read::<Document>().is_err());
    }
}
