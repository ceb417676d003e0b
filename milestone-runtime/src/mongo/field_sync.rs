//! Fields that are copied into other documents, kept in sync: the name of a user in all their comments.
//!
//! One write changes the document and marks it. Copying the change on, the fan-out, is a milestone. If nobody starts it, since the process
//! died in between, a sweep finds the mark and does. Each change has a mark of its own, and a fan-out removes only that, and only while no
//! other one copies: a document without a mark is one whose copies are in sync.

mod error;
mod fan_out;
mod id;
mod mark;
#[cfg(test)]
mod model;
mod sweep;

use std::{collections::HashSet, fmt, pin::Pin, sync::Arc, time::Duration};

use bson::{Bson, Document, doc, oid::ObjectId};
use milestone_core::graph::Action;
use mongodb::{
    Collection, IndexModel,
    options::{IndexOptions, WriteConcern},
};
use serde::de::DeserializeOwned;

pub use self::error::FieldSyncError;
use super::server_clock::ServerClock;
use crate::{
    action::{Options, RetryPolicy},
    handle::Handle,
    registry::Method,
    runtime::Runtime,
    start::{Start, StartError},
};

/// How often marks that were left are looked for, where nothing is said.
const EVERY: Duration = Duration::from_mins(1);

/// How old a mark is that was left, where nothing is said.
const OLDER_THAN: Duration = Duration::from_mins(1);

/// The longest wait after an error: whoever reads a copy that is old waits too.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// How long the server may look for its majority.
const PATIENCE: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the application does with a changed document.
type Copying = Arc<
    dyn Fn(Document) -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync,
>;

/// Keeps what is copied of a document in sync with it.
///
/// ```no_run
/// # use serde::{Deserialize, Serialize};
/// use bson::{Document, doc};
/// use milestone_runtime::{Runtime, mongo::FieldSync};
///
/// # #[derive(Serialize, Deserialize)]
/// # struct User { #[serde(rename = "_id")] id: String, name: String }
/// # async fn main_(database: mongodb::Database) -> Result<(), Box<dyn std::error::Error>> {
/// let users = database.collection::<User>("users");
/// let comments = database.collection::<Document>("comments");
/// let names = FieldSync::new("user-name", &users, move |user: User| {
///     let comments = comments.clone();
///     async move { comments.update_many(doc! { "user": user.id }, doc! { "$set": { "userName": user.name } }).await }
/// });
/// let runtime = Runtime::builder("mongodb://localhost/shop").field_sync(&names).build().await?;
/// runtime.spawn();
/// names.update(&runtime, "ann", doc! { "$set": { "name": "Ann B." } }).await?.outcome().await?;
/// # Ok(())
/// # }
/// ```
///
/// While copies may be out of sync, the document has the field `syncing: { "user-name": { mark, at, copying } }`; an empty `syncing` stays. Only
/// what is written by [`FieldSync::update`] is kept in sync. Cheap to clone.
#[derive(Clone)]
pub struct FieldSync {
    inner: Arc<Inner>,
    every: Duration,
    older_than: Duration,
}

struct Inner {
    name: String,
    documents: Collection<Document>,
    copy: Copying,
    clock: ServerClock,
}

impl FieldSync {
    /// Keeps in sync, under a durable name, what `copy` writes of a document. `copy` gets the document as it is after a change, and writes all
    /// that depends on it. It is called again after a failure and after a crash, so it must be one that may be repeated, and it may be
    /// called by two processes at once. A name has no `.`, `/` or `$` in it.
    pub fn new<T, F, Fut, R, E>(name: impl Into<String>, documents: &Collection<T>, copy: F) -> Self
    where
        T: DeserializeOwned + Send + Sync,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let documents = documents.clone_with_type();
        let copy: Copying = Arc::new(move |document| {
            let called = bson::deserialize_from_document(document).map(&copy);
            Box::pin(async move {
                let copied =
                    called.map_err(|error| format!("the document does not fit: {error}"))?;
                copied.await.map(drop).map_err(Into::into)
            })
        });
        Self {
            inner: Arc::new(Inner {
                name: name.into(),
                clock: ServerClock::new(documents.client().clone()),
                documents,
                copy,
            }),
            every: EVERY,
            older_than: OLDER_THAN,
        }
    }

    /// How often a worker looks for marks that were left, half as much more or less. Default 1 min.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self
    }

    /// How old a mark is that was left, by the server's clock. A mark is younger while its fan-out is started. Default 1 min.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = age;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Changes the document with that `_id` and marks it, in one write, and starts the fan-out, whose handle it gives: its outcome is there when the
    /// copies are in sync with this change, or the fan-out of a later one sees to them. The update is one with operators (`$set`, `$inc` and so on); an empty one only
    /// starts a fan-out. The `_id` is a value: an operator, a regular expression and an array are refused.
    ///
    /// # Errors
    /// [`FieldSyncError`] says whether the document is changed. If it is, it is marked too, and the sweep of a worker brings its copies in sync.
    pub async fn update(
        &self,
        runtime: &Runtime,
        id: impl Into<Bson>,
        update: Document,
    ) -> Result<Handle<()>, FieldSyncError> {
        let id = id.into();
        mark::check_name(self.name())?;
        id::check_id(self.name(), &id)?;
        let new = ObjectId::new();
        let update = mark::marking(self.name(), update, new)?;
        let write = self.inner.documents.update_one(id::of(&id), update);
        let written = write.write_concern(concern()).await;
        let written = written.map_err(|error| FieldSyncError::Update {
            name: self.name().to_owned(),
            id: Box::new(id.clone()),
            error,
        })?;
        if written.matched_count == 0 {
            return Err(FieldSyncError::NotFound {
                id: Box::new(id),
                collection: self.inner.documents.namespace().to_string(),
            });
        }
        let started = self.start(runtime, &id, new).await;
        started.map_err(|error| FieldSyncError::NotStarted {
            name: self.name().to_owned(),
            id: Box::new(id),
            error: Box::new(error),
        })
    }

    /// Starts the fan-out of a mark; whoever does it again attaches.
    async fn start(
        &self,
        runtime: &Runtime,
        id: &Bson,
        mark: ObjectId,
    ) -> Result<Handle<()>, StartError> {
        let method = mark::method(self.name());
        let graph = Action::new("copy").method(&method).idempotent();
        let parameters = doc! { "id": id.clone(), "mark": mark };
        let start = runtime.start(&method, graph, parameters);
        let start = Start {
            decode: |_| Ok(()),
            runtime: start.runtime,
            new: start.new,
        };
        start.id(mark::milestone(self.name(), id, mark)).await
    }

    /// The action of the fan-out.
    pub(crate) fn method(&self) -> Method {
        let inner = Arc::clone(&self.inner);
        let method = Method::new(mark::method(self.name()), move |call| {
            let inner = Arc::clone(&inner);
            async move { fan_out::fan_out(&inner, &call).await }
        });
        method.options(Options::idempotent().retry(RetryPolicy::new().cap(LONGEST_WAIT)))
    }

    /// Prepares all field syncs of a runtime.
    pub(crate) async fn prepare_all(syncs: &[Self]) -> Result<(), FieldSyncError> {
        let mut names = HashSet::new();
        for sync in syncs {
            if !names.insert(sync.name()) {
                let name = sync.name().to_owned();
                return Err(FieldSyncError::Twice { name });
            }
            sync.prepare().await?;
        }
        Ok(())
    }

    /// Checks the name, and makes the index by which marks are found: only documents that are marked are in it.
    pub(crate) async fn prepare(&self) -> Result<(), FieldSyncError> {
        mark::check_name(self.name())?;
        let options = IndexOptions::builder()
            .name(format!("milestone_syncing_{}", self.name()))
            .sparse(true)
            .build();
        let index = IndexModel::builder()
            .keys(doc! { mark::at(self.name()): 1 })
            .options(options)
            .build();
        let made = self.inner.documents.create_index(index).await;
        made.map(drop).map_err(|error| self.inner.error(error))
    }
}

impl Inner {
    fn error(&self, error: mongodb::error::Error) -> FieldSyncError {
        FieldSyncError::Database {
            name: self.name.clone(),
            error,
        }
    }
}

impl fmt::Debug for FieldSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldSync")
            .field("name", &self.inner.name)
            .field("documents", &self.inner.documents.namespace().to_string())
            .finish_non_exhaustive()
    }
}

/// A change and a mark that were acknowledged must not be lost, one without the other least of all.
fn concern() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern.w_timeout = Some(PATIENCE);
    concern
}
