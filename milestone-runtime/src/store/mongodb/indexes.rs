//! The indexes: the one of the robot, and the one that lets finished milestones expire.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::{
    IndexModel,
    error::{Error, ErrorKind},
    options::IndexOptions,
};
use std::time::Duration;

use super::connect::Connection;
use crate::store::StoreError;

const NAMESPACE_NOT_FOUND: i32 = 26;

/// An index as it must be.
struct Wanted {
    name: &'static str,
    keys: Document,
    sparse: bool,
    expires: bool,
}

fn wanted() -> [Wanted; 2] {
    [
        Wanted {
            name: "milestone_next",
            keys: doc! { "next.queue": 1, "next.at": 1 },
            sparse: true,
            expires: false,
        },
        Wanted {
            name: "milestone_expire",
            keys: doc! { "expireAt": 1 },
            sparse: false,
            expires: true,
        },
    ]
}

impl Wanted {
    fn model(&self) -> IndexModel {
        let options = IndexOptions::builder()
            .name(self.name.to_owned())
            .sparse(self.sparse.then_some(true))
            .expire_after(self.expires.then_some(Duration::ZERO))
            .build();
        IndexModel::builder()
            .keys(self.keys.clone())
            .options(options)
            .build()
    }

    /// Whether one of those that exist serves; an error if one stands in the way.
    fn is_among(&self, collection: &str, existing: &[IndexModel]) -> Result<bool, StoreError> {
        let same_keys = |index: &IndexModel| same_keys(&index.keys, &self.keys);
        let Some(index) = existing
            .iter()
            .find(|index| name(index) == self.name)
            .or_else(|| existing.iter().find(|index| same_keys(index)))
        else {
            return Ok(false);
        };
        let found = describe(index);
        let needed = describe(&self.model());
        if same_keys(index) && found == needed {
            return Ok(true);
        }
        Err(self.wrong(
            collection,
            name(index),
            &format!("it is on {found}, not on {needed}"),
        ))
    }

    fn wrong(&self, collection: &str, name: &str, reason: &str) -> StoreError {
        StoreError::Index {
            collection: collection.to_owned(),
            name: name.to_owned(),
            reason: format!(
                "{reason}; drop it (db.getCollection(\"{collection}\").dropIndex(\"{name}\")) and open again, then `{}` is made",
                self.name
            ),
        }
    }
}

fn name(index: &IndexModel) -> &str {
    index
        .options
        .as_ref()
        .and_then(|options| options.name.as_deref())
        .unwrap_or_default()
}

/// Whether two indexes are on the same fields in the same direction, whatever the type of the number.
fn same_keys(left: &Document, right: &Document) -> bool {
    directions(left) == directions(right)
}

fn directions(keys: &Document) -> Vec<(&str, String)> {
    let direction = |value: &Bson| match value {
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Double(number) => number.to_string(),
        other => other.to_string(),
    };
    keys.iter()
        .map(|(key, value)| (key.as_str(), direction(value)))
        .collect()
}

/// All that makes a difference to us, for people and to compare.
fn describe(index: &IndexModel) -> String {
    let mut text = directions(&index.keys)
        .into_iter()
        .map(|(key, direction)| format!("{key}: {direction}"))
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(options) = &index.options {
        if options.sparse == Some(true) {
            text.push_str(", sparse");
        }
        if options.unique == Some(true) {
            text.push_str(", unique");
        }
        if options.hidden == Some(true) {
            text.push_str(", hidden");
        }
        if options.partial_filter_expression.is_some() {
            text.push_str(", partial");
        }
        if options.collation.is_some() {
            text.push_str(", with a collation");
        }
        if let Some(expire) = options.expire_after {
            text = format!("{text}, expires after {} s", expire.as_secs());
        }
    }
    text
}

/// Makes what is missing. Several may do so at once.
pub(super) async fn ensure(connection: &Connection) -> Result<(), StoreError> {
    let collection = connection.milestones.name();
    let existing = existing(connection)
        .await
        .map_err(|error| connection.error(error))?;
    for index in wanted() {
        if index.is_among(collection, &existing)? {
            continue;
        }
        connection
            .milestones
            .create_index(index.model())
            .await
            .map_err(|error| match &*error.kind {
                // IndexOptionsConflict and IndexKeySpecsConflict: somebody made another one in between.
                ErrorKind::Command(command) if matches!(command.code, 85 | 86) => {
                    index.wrong(collection, index.name, &command.message)
                }
                _ => connection.error(error),
            })?;
    }
    Ok(())
}

/// What is missing, by name, the collection itself too. Nothing is made.
pub(super) async fn lacks(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let collection = connection.milestones.name();
    let names = connection
        .database
        .list_collection_names()
        .filter(doc! { "name": collection })
        .await
        .map_err(|error| connection.error(error))?;
    if names.is_empty() {
        return Ok(vec![collection.to_owned()]);
    }
    let existing = existing(connection)
        .await
        .map_err(|error| connection.error(error))?;
    let mut lacks = Vec::new();
    for index in wanted() {
        if !index.is_among(collection, &existing)? {
            lacks.push(index.name.to_owned());
        }
    }
    Ok(lacks)
}

async fn existing(connection: &Connection) -> Result<Vec<IndexModel>, Error> {
    let listed = match connection.milestones.list_indexes().await {
        Ok(cursor) => cursor.try_collect().await,
        Err(error) => Err(error),
    };
    match listed {
        Err(error) if matches!(&*error.kind, ErrorKind::Command(command) if command.code == NAMESPACE_NOT_FOUND) => {
            Ok(Vec::new())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(name: &str, keys: Document, options: IndexOptions) -> IndexModel {
        let mut options = options;
        options.name = Some(name.to_owned());
        IndexModel::builder().keys(keys).options(options).build()
    }

    fn judged(wanted: &Wanted, existing: &[IndexModel]) -> Result<bool, String> {
        wanted
            .is_among("_milestones_", existing)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_index_that_is_there_is_left_alone() {
        let [next, expire] = wanted();
        let id = index("_id_", doc! { "_id": 1 }, IndexOptions::default());
        assert_eq!(judged(&next, std::slice::from_ref(&id)), Ok(false));
        let sparse = IndexOptions::builder().sparse(true).build();
        let renamed = index("mine", doc! { "next.queue": 1.0, "next.at": 1_i64 }, sparse);
        assert_eq!(judged(&next, &[id, renamed]), Ok(true));
        assert_eq!(judged(&expire, &[expire.model()]), Ok(true));
    }

    #[test]
    fn a_wrong_index_is_named_with_the_remedy() {
        let [next, expire] = wanted();
        let plain = index("mine", next.keys.clone(), IndexOptions::default());
        let expected = "the index `mine` of `_milestones_` is not as it must be: it is on next.queue: 1, next.at: 1, not on next.queue: 1, \
                        next.at: 1, sparse; drop it (db.getCollection(\"_milestones_\").dropIndex(\"mine\")) and open again, then \
                        `milestone_next` is made";
        assert_eq!(judged(&next, &[plain]), Err(expected.to_owned()));
        let other_keys = index(
            "milestone_next",
            doc! { "next.at": 1 },
            IndexOptions::default(),
        );
        assert!(
            judged(&next, &[other_keys])
                .unwrap_err()
                .contains("it is on next.at: 1, not on")
        );
        let slow = index(
            "milestone_expire",
            doc! { "expireAt": 1 },
            IndexOptions::builder()
                .expire_after(Duration::from_secs(9))
                .build(),
        );
        assert!(
            judged(&expire, &[slow])
                .unwrap_err()
                .contains("expires after 9 s, not on expireAt: 1, expires after 0 s")
        );
    }
}
