//! Markers on documents of the application and witnesses: what the toolkit leaves behind, and removes. See `mongo/trace.rs`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt as _;
use milestone_core::record::{ActionState, MilestoneId, Status};
use mongodb::{
    Collection, Cursor, IndexModel, Namespace,
    error::Error,
    options::{Hint, IndexOptions},
};
use serde::Deserialize;

use super::{
    MongoStore,
    connect::Connection,
    errors,
    read::{self, Concern},
};
use crate::{
    mongo::{
        fate::{Found, View},
        trace::{MARKERS, Marker, Place, Trace, WitnessKey},
    },
    store::StoreError,
};

/// How many traces are looked at in one go.
pub(crate) const TRACES_AT_ONCE: usize = 500;

/// About how many bytes a command has at the most, far below what MongoDB takes.
const COMMAND_SIZE: usize = 4 << 20;

/// The index by which markers are found.
const INDEX: &str = "milestone_pending";

impl MongoStore {
    /// Stores a witness, unless there is one with its key, which is then given.
    pub(crate) async fn witness(
        &self,
        key: &WitnessKey,
        output: Bson,
        at: DateTime,
    ) -> Result<Option<Bson>, StoreError> {
        let connection = self.connection()?;
        loop {
            match insert_witness(&connection, key, output.clone(), at).await {
                Ok(()) => return Ok(None),
                Err(error) if errors::is_duplicate_key(&error) => {
                    // One that is gone again was of no more use.
                    if let Some(output) = find_witness(&connection, key).await? {
                        return Ok(Some(output));
                    }
                }
                Err(error) => return Err(connection.error(error)),
            }
        }
    }

    /// What a witness says, if it is there.
    pub(crate) async fn find_witness(&self, key: &WitnessKey) -> Result<Option<Bson>, StoreError> {
        find_witness(&*self.connection()?, key).await
    }

    /// Those of some witnesses that are there.
    pub(crate) async fn find_witnesses(
        &self,
        keys: &[WitnessKey],
    ) -> Result<Vec<WitnessKey>, StoreError> {
        let connection = self.connection()?;
        let mut ids: Vec<Bson> = keys.iter().map(|key| key.to_bson().into()).collect();
        let id = match (ids.pop(), ids.is_empty()) {
            (Some(id), true) => id,
            (last, _) => {
                ids.extend(last);
                doc! { "$in": ids }.into()
            }
        };
        let found: Result<Vec<RawDocumentBuf>, Error> = async {
            let found = connection
                .witnesses
                .find(doc! { "_id": id })
                .with_options(Concern::Settled.options(&connection))
                .projection(doc! { "_id": 1 })
                .await?;
            found.try_collect().await
        }
        .await;
        let found = found.map_err(|error| connection.error(error))?;
        Ok(found.iter().filter_map(key_of).collect())
    }

    /// Notes that documents of a collection are marked, and makes the index by which marks that were left are found.
    pub(crate) async fn note_marked(&self, namespace: &Namespace) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let noted = async {
            let index = IndexModel::builder()
                .keys(doc! { "pendingMilestones.at": 1 })
                .options(
                    IndexOptions::builder()
                        .name(INDEX.to_owned())
                        .sparse(true)
                        .build(),
                )
                .build();
            collection(&connection, namespace)
                .create_index(index)
                .await?;
            let id = doc! { "_id": { "database": &namespace.db, "collection": &namespace.coll } };
            let noted = RawDocumentBuf::try_from(&id).map_err(Error::custom)?;
            connection.marked.insert_one(noted).await
        };
        match noted.await {
            Ok(_) => Ok(()),
            // It was noted before.
            Err(error) if errors::is_duplicate_key(&error) => Ok(()),
            Err(error) => Err(connection.error(error)),
        }
    }

    /// The collections in which documents are or were marked.
    pub(crate) async fn marked(&self) -> Result<Vec<Namespace>, StoreError> {
        let connection = self.connection()?;
        let found: Result<Vec<RawDocumentBuf>, Error> = async {
            let found = connection.marked.find(doc! {}).await?;
            found.try_collect().await
        }
        .await;
        let found = found.map_err(|error| connection.error(error))?;
        let namespace = |document: &RawDocumentBuf| {
            let id = document.get_document("_id").ok()?;
            Some(Namespace::new(
                id.get_str("database").ok()?,
                id.get_str("collection").ok()?,
            ))
        };
        Ok(found.iter().filter_map(namespace).collect())
    }

    /// Markers of a collection that are older.
    pub(crate) async fn old_markers(
        &self,
        namespace: &Namespace,
        before: DateTime,
    ) -> Result<OldTraces, StoreError> {
        let connection = self.connection()?;
        let found = collection(&connection, namespace)
            .clone_with_type::<RawDocumentBuf>()
            .find(doc! { MARKERS: { "$elemMatch": { "at": { "$lt": before } } } })
            .hint(Hint::Name(INDEX.to_owned()))
            .projection(doc! { MARKERS: 1 })
            .await;
        let namespace = namespace.clone();
        Ok(OldTraces {
            documents: found.map_err(|error| connection.error(error))?,
            traces: Box::new(move |document| {
                let Ok(document) = Document::try_from(document) else {
                    return Vec::new();
                };
                let markers = markers_of(&namespace, &document).into_iter();
                markers
                    .filter(|(_, at)| *at < before)
                    .map(|(marker, _)| marker)
                    .collect()
            }),
            connection,
        })
    }

    /// Witnesses that are older.
    pub(crate) async fn old_witnesses(&self, before: DateTime) -> Result<OldTraces, StoreError> {
        let connection = self.connection()?;
        let found = connection
            .witnesses
            .find(doc! { "at": { "$lt": before } })
            .projection(doc! { "_id": 1 })
            .await;
        Ok(OldTraces {
            documents: found.map_err(|error| connection.error(error))?,
            traces: Box::new(|witness| key_of(witness).map(Trace::Witness).into_iter().collect()),
            connection,
        })
    }

    /// How far milestones are. One that is not there is gone.
    pub(crate) async fn views(
        &self,
        ids: &[MilestoneId],
    ) -> Result<HashMap<MilestoneId, Found>, StoreError> {
        let connection = self.connection()?;
        let projection = doc! { "state": 1, "endDate": 1, "actions.name": 1, "actions.state": 1, "actions.undo.method": 1 };
        let found = read::documents(&connection, ids, Some(projection), Concern::Majority).await;
        let found = found.map_err(|error| connection.error(error))?;
        let found = found
            .iter()
            .filter_map(|document| Some((read::id(document)?, view(document))));
        Ok(found.collect())
    }

    /// Removes traces; what is gone already is no error. What the server does not let go, such as a marker on a document that its validator
    /// would not take any more, or in a collection where this user has no rights, is told in the log, keeps nothing else, and is found again
    /// by a later sweep.
    pub(crate) async fn remove_traces(&self, traces: &[Trace]) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let not_removed = |error: Error, namespace: &str| {
            tracing::warn!(error = %errors::reason(&error), namespace, "markers or witnesses that are of no more use cannot be removed; it is tried again");
        };
        let mut witnesses = Vec::new();
        let mut updates: BTreeMap<(&str, &str), Vec<Document>> = BTreeMap::new();
        for trace in traces {
            match trace {
                Trace::Witness(key) => witnesses.push(Bson::Document(key.to_bson())),
                Trace::Marker { place, marker } => {
                    let statements = updates
                        .entry((&place.database, &place.collection))
                        .or_default();
                    let pull = doc! { "$pull": { MARKERS: marker.key() } };
                    statements.push(doc! { "q": { "_id": place.id.clone() }, "u": pull });
                    let empty = doc! { "_id": place.id.clone(), MARKERS: [] };
                    statements.push(doc! { "q": empty, "u": { "$unset": { MARKERS: 1 } } });
                }
            }
        }
        let updates = updates
            .into_iter()
            .flat_map(|(collection, statements)| in_commands(collection, statements));
        for ((database, collection), statements) in updates {
            let update = doc! { "update": collection, "updates": statements, "ordered": false, "writeConcern": connection.write_concern() };
            let namespace = format!("{database}.{collection}");
            let database = connection.client.database(database);
            match database.run_command(update).await {
                Err(error) => not_removed(error, &namespace),
                Ok(reply) => {
                    if let Ok([first, ..]) = reply.get_array("writeErrors").map(Vec::as_slice) {
                        tracing::warn!(namespace, reason = %first, "a marker cannot be removed from its document");
                    }
                }
            }
        }
        if !witnesses.is_empty() {
            let these = doc! { "_id": { "$in": witnesses } };
            if let Err(error) = connection.witnesses.delete_many(these).await {
                not_removed(error, &connection.witnesses.namespace().to_string());
            }
        }
        Ok(())
    }
}

/// Statements in as few commands as their size allows: ids and labels may be long.
fn in_commands<C: Copy>(collection: C, statements: Vec<Document>) -> Vec<(C, Vec<Document>)> {
    let mut commands: Vec<(C, Vec<Document>)> = Vec::new();
    let mut room = 0;
    for statement in statements {
        let size = statement.to_vec().map_or(0, |bytes| bytes.len());
        match commands.last_mut() {
            Some((_, command)) if size <= room => command.push(statement),
            _ => {
                commands.push((collection, vec![statement]));
                room = COMMAND_SIZE;
            }
        }
        room = room.saturating_sub(size);
    }
    commands
}

/// The traces that a document tells of.
type TracesOf = Box<dyn Fn(&RawDocumentBuf) -> Vec<Trace> + Send + Sync>;

/// Traces that are found, some at a time.
pub(crate) struct OldTraces {
    documents: Cursor<RawDocumentBuf>,
    traces: TracesOf,
    connection: Arc<Connection>,
}

impl OldTraces {
    /// The next ones; none is the end.
    pub(crate) async fn next(&mut self) -> Result<Vec<Trace>, StoreError> {
        let mut traces = Vec::new();
        while traces.len() < TRACES_AT_ONCE {
            match self.documents.try_next().await {
                Ok(Some(document)) => traces.extend((self.traces)(&document)),
                Ok(None) => break,
                Err(error) => return Err(self.connection.error(error)),
            }
        }
        Ok(traces)
    }
}

fn collection(connection: &Connection, namespace: &Namespace) -> Collection<Document> {
    connection
        .client
        .database(&namespace.db)
        .collection(&namespace.coll)
}

/// The key of a witness.
fn key_of(witness: &RawDocumentBuf) -> Option<WitnessKey> {
    let id = witness.get_document("_id").ok()?;
    WitnessKey::read(&Document::try_from(id).ok()?)
}

async fn insert_witness(
    connection: &Connection,
    key: &WitnessKey,
    output: Bson,
    at: DateTime,
) -> Result<(), Error> {
    let witness = doc! { "_id": key.to_bson(), "output": output, "at": at };
    let witness = RawDocumentBuf::try_from(&witness).map_err(Error::custom)?;
    connection.witnesses.insert_one(witness).await.map(|_| ())
}

async fn find_witness(
    connection: &Connection,
    key: &WitnessKey,
) -> Result<Option<Bson>, StoreError> {
    let witness = read_witness(connection, key).await?;
    witness.as_ref().map(output_of).transpose()
}

/// Reads a witness settled.
pub(super) async fn read_witness(
    connection: &Connection,
    key: &WitnessKey,
) -> Result<Option<RawDocumentBuf>, StoreError> {
    let found: Result<Vec<RawDocumentBuf>, Error> = async {
        let found = connection
            .witnesses
            .find(doc! { "_id": key.to_bson() })
            .with_options(Concern::Settled.options(connection))
            .await?;
        found.try_collect().await
    }
    .await;
    let found = found.map_err(|error| connection.error(error))?;
    Ok(found.into_iter().next())
}

/// What a witness says.
pub(super) fn output_of(witness: &RawDocumentBuf) -> Result<Bson, StoreError> {
    let output = witness.get("output").ok().flatten();
    let output = output.map(Bson::try_from).transpose();
    let output = output.map_err(|error| StoreError::Other(error.to_string()))?;
    Ok(output.unwrap_or(Bson::Null))
}

fn markers_of(namespace: &Namespace, document: &Document) -> Vec<(Trace, DateTime)> {
    let Some(id) = document.get("_id") else {
        return Vec::new();
    };
    let markers = document.get_array(MARKERS).map(Vec::as_slice);
    let markers = markers.unwrap_or_default().iter();
    markers
        .filter_map(|marker| {
            let marker = marker.as_document()?;
            let at = *marker.get_datetime("at").ok()?;
            let place = Place {
                database: namespace.db.clone(),
                collection: namespace.coll.clone(),
                id: id.clone(),
            };
            let marker = Marker::read(marker)?;
            Some((Trace::Marker { place, marker }, at))
        })
        .collect()
}

fn view(document: &RawDocumentBuf) -> Found {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Milestone {
        state: Status,
        end_date: Option<DateTime>,
        #[serde(default)]
        actions: Vec<Action>,
    }
    #[derive(Deserialize)]
    struct Action {
        name: String,
        state: ActionState,
        undo: Option<RawDocumentBuf>,
    }
    let Ok(milestone) = bson::deserialize_from_slice::<Milestone>(document.as_bytes()) else {
        return Found::Unreadable;
    };
    let actions = milestone.actions.into_iter();
    Found::Seen(View {
        state: milestone.state,
        end_date: milestone.end_date,
        actions: actions
            .map(|action| (action.name, action.state, action.undo.is_some()))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_tells_what_can_be_undone() {
        let document = doc! {
            "_id": "t-1",
            "state": "running",
            "actions": [
                { "name": "debit", "state": "completed", "undo": { "method": "refund" } },
                { "name": "credit", "state": "in_doubt" },
            ],
        };
        let document = RawDocumentBuf::try_from(&document).unwrap();
        let actions = vec![
            ("debit".to_owned(), ActionState::Completed, true),
            ("credit".to_owned(), ActionState::InDoubt, false),
        ];
        let expected = View {
            state: Status::Running,
            end_date: None,
            actions,
        };
        assert_eq!(view(&document), Found::Seen(expected));
        let of_a_later_version = doc! { "_id": "t-2", "state": "dreaming", "actions": [] };
        let document = RawDocumentBuf::try_from(&of_a_later_version).unwrap();
        assert_eq!(view(&document), Found::Unreadable);
    }

    #[test]
    fn long_labels_are_removed_in_several_commands() {
        let statement = |size: usize| doc! { "q": "x".repeat(size) };
        let sizes = [
            COMMAND_SIZE / 2,
            COMMAND_SIZE / 3,
            COMMAND_SIZE / 3,
            3 * COMMAND_SIZE,
            1,
        ];
        let commands = in_commands("accounts", sizes.map(statement).to_vec());
        let counts: Vec<usize> = commands.iter().map(|(_, command)| command.len()).collect();
        assert_eq!(counts, [2, 1, 1, 1]);
        assert_eq!(
            in_commands("accounts", vec![statement(1), statement(1)]).len(),
            1
        );
    }

    #[test]
    fn what_is_no_marker_is_left_alone() {
        let at = DateTime::from_millis(7);
        let marker = Marker {
            milestone: "t-1".into(),
            started: DateTime::from_millis(3),
            action: "debit".to_owned(),
            label: String::new(),
            undone: false,
        };
        let document =
            doc! { "_id": 7, MARKERS: ["t-0", { "milestone": "t-1" }, marker.stored(at)] };
        let namespace = Namespace::new("bank", "accounts");
        let place = Place {
            database: "bank".to_owned(),
            collection: "accounts".to_owned(),
            id: Bson::Int32(7),
        };
        assert_eq!(
            markers_of(&namespace, &document),
            [(Trace::Marker { place, marker }, at)]
        );
    }
}
