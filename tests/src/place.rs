//! Where the milestones of a test are stored: every behaviour is tested on each store.

use std::{sync::Arc, time::Duration};

use bson::{Bson, Document, RawDocumentBuf, doc};
use milestone_runtime::{
    Runtime, RuntimeBuilder,
    core::record::MilestoneId,
    store::{
        Store,
        mongodb::{DEFAULT_COLLECTION, MongoStore},
        sqlite::SqliteStore,
    },
};
use tempfile::TempDir;

use crate::{
    server::{self, Scratch},
    steady::steadily,
};

/// How long a test may take before it counts as hung. The longest take ten seconds on two idle cores.
const PATIENCE: Duration = Duration::from_mins(5);

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The embedded store without a file.
    Memory,
    /// The embedded store in a file.
    Sqlite,
    /// A MongoDB server.
    MongoDb,
}

/// A place for milestones that no other test uses. It is removed when the last clone is dropped.
#[derive(Clone)]
pub struct Place {
    inner: Arc<Inner>,
}

enum Inner {
    /// A memory is the store itself, so all runtimes of the place share it.
    Memory(Arc<SqliteStore>),
    Sqlite(TempDir),
    MongoDb(Scratch),
}

impl Place {
    /// A new one, empty.
    pub async fn new(kind: Kind) -> Self {
        let inner = match kind {
            Kind::Memory => Inner::Memory(Arc::new(
                SqliteStore::memory(DEFAULT_COLLECTION).expect("a store in memory"),
            )),
            Kind::Sqlite => Inner::Sqlite(TempDir::new().expect("a temporary folder")),
            Kind::MongoDb => Inner::MongoDb(Scratch::new().await),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Which store it is on.
    pub fn kind(&self) -> Kind {
        match *self.inner {
            Inner::Memory(_) => Kind::Memory,
            Inner::Sqlite(_) => Kind::Sqlite,
            Inner::MongoDb(_) => Kind::MongoDb,
        }
    }

    /// The URI of the place. `memory:` means another store each time, so [`Place::builder`] does not use it.
    pub fn uri(&self) -> String {
        match &*self.inner {
            Inner::Memory(_) => "memory:".to_owned(),
            Inner::Sqlite(folder) => format!("sqlite:{}", folder.path().join("bank.db").display()),
            Inner::MongoDb(scratch) => mongodb_uri(&server::uri(), scratch.name()),
        }
    }

    /// The database, where the place is on a MongoDB server.
    pub fn scratch(&self) -> Option<&Scratch> {
        match &*self.inner {
            Inner::MongoDb(scratch) => Some(scratch),
            _ => None,
        }
    }

    /// A builder for a runtime that has no action but those that the test registers, and that looks for work often.
    pub fn builder(&self) -> RuntimeBuilder {
        let builder = bare(self.uri());
        match &*self.inner {
            Inner::Memory(store) => builder.store(Arc::<SqliteStore>::clone(store)),
            _ => builder,
        }
    }

    /// Puts a document in its place as it is, whatever it says; one of the same `_id` is replaced.
    ///
    /// # Panics
    /// If it cannot be.
    pub async fn plant(&self, document: Document) {
        match &*self.inner {
            Inner::Memory(store) => store.plant(document).await.expect("it is planted"),
            Inner::Sqlite(_) => {
                let store = self.file();
                store.open().await.expect("the store opens");
                store.plant(document).await.expect("it is planted");
            }
            Inner::MongoDb(scratch) => {
                let id = document.get("_id").cloned().expect("an _id");
                let raw = RawDocumentBuf::try_from(&document).expect("BSON");
                scratch
                    .database()
                    .collection::<RawDocumentBuf>(DEFAULT_COLLECTION)
                    .replace_one(doc! { "_id": id }, raw)
                    .upsert(true)
                    .await
                    .expect("it is planted");
            }
        }
    }

    /// Reads a document as it is stored.
    ///
    /// # Panics
    /// If it cannot be read.
    pub async fn raw(&self, id: impl Into<MilestoneId>) -> Option<Document> {
        let id = id.into();
        match &*self.inner {
            Inner::Memory(store) => store.raw(id).await.expect("it is read"),
            Inner::Sqlite(_) => {
                let store = self.file();
                store.open().await.expect("the store opens");
                store.raw(id).await.expect("it is read")
            }
            Inner::MongoDb(scratch) => {
                let collection = scratch
                    .database()
                    .collection::<RawDocumentBuf>(DEFAULT_COLLECTION);
                let found = collection.find_one(doc! { "_id": Bson::from(id) }).await;
                // Not by serde, which would take some values for extended JSON.
                found
                    .expect("it is read")
                    .map(|raw| Document::try_from(&*raw).expect("BSON"))
            }
        }
    }

    /// The file of the place as a store of its own, as another process has it.
    fn file(&self) -> SqliteStore {
        let Inner::Sqlite(folder) = &*self.inner else {
            unreachable!("only asked where there is a file")
        };
        SqliteStore::open_file(folder.path().join("bank.db"), DEFAULT_COLLECTION)
            .expect("a store in a file")
    }

    /// The store, opened on the runtime of the test.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn store(&self) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = match &*self.inner {
            Inner::Memory(store) => Arc::<SqliteStore>::clone(store),
            Inner::Sqlite(_) => Arc::new(self.file()),
            Inner::MongoDb(_) => {
                Arc::new(MongoStore::from_uri(&self.uri(), None).expect("a store on a server"))
            }
        };
        store.open().await.expect("the store opens");
        store
    }
}

/// The store of a URI, not opened yet.
///
/// # Panics
/// If the URI means no store that several processes may share.
pub fn unopened(uri: &str) -> Arc<dyn Store> {
    match uri.strip_prefix("sqlite:") {
        Some(path) => {
            Arc::new(SqliteStore::open_file(path, DEFAULT_COLLECTION).expect("a store in a file"))
        }
        None => Arc::new(MongoStore::from_uri(uri, None).expect("a store on a server")),
    }
}

/// The URI of a database on a MongoDB server. Its name is the `appName` too, by which fail points find their victim.
///
/// # Panics
/// If the URI has a database already.
pub fn mongodb_uri(server: &str, database: &str) -> String {
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    let hosts = address
        .strip_suffix('/')
        .unwrap_or(address)
        .strip_prefix("mongodb://")
        .expect("the URI of a MongoDB server");
    assert!(!hosts.contains('/'), "{server} names a database");
    let options = [options, "appName="]
        .into_iter()
        .filter(|part| !part.is_empty());
    let options: Vec<&str> = options.collect();
    format!(
        "mongodb://{hosts}/{database}?{}{database}",
        options.join("&")
    )
}

/// A builder for a runtime at a URI that has no action but those that the test registers, and that looks for work often.
pub fn bare(uri: impl Into<String>) -> RuntimeBuilder {
    Runtime::builder(uri)
        .actions(std::iter::empty::<String>())
        .poll(Duration::from_millis(50))
}

/// Runs the body of a test in a new place.
///
/// # Panics
/// If the body takes too long.
pub fn run<F: Future<Output = ()>>(kind: Kind, body: impl FnOnce(Place) -> F) {
    run_async(async move { body(Place::new(kind).await).await });
}

/// As [`run`], for a test which gives something `time` for what takes far less of it, see [`steadily`]. Each try has a place of its own.
///
/// # Panics
/// If the body takes too long.
pub fn run_steadily<F: Future<Output = ()>>(time: Duration, kind: Kind, body: impl Fn(Place) -> F) {
    run_async(steadily(time, async || {
        body(Place::new(kind).await).await;
    }));
}

/// As [`run`], for a test that may take longer than the others.
///
/// # Panics
/// If the body takes longer than it may.
pub fn run_within<F: Future<Output = ()>>(
    patience: Duration,
    kind: Kind,
    body: impl FnOnce(Place) -> F,
) {
    block_on(patience, async move { body(Place::new(kind).await).await });
}

/// Runs the body of a test that brings its own place.
///
/// # Panics
/// If the body takes too long.
pub fn run_async(body: impl Future<Output = ()>) {
    block_on(PATIENCE, body);
}

fn block_on(patience: Duration, body: impl Future<Output = ()>) {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a tokio runtime");
    tokio.block_on(async {
        tokio::time::timeout(patience, body)
            .await
            .expect("the test hangs");
    });
}

/// Makes a test of each function on each store, or on those that are named: `on_stores!(sqlite, mongodb: a, b)`. Those that give something a
/// time which a machine that stands still exceeds say which constant that is: `on_stores!(steadily LEASE, sqlite, mongodb: a, b)`.
#[macro_export]
macro_rules! on_stores {
    (@one $time:tt memory: $($name:ident),*) => { $crate::on_stores!(@module $time memory Memory $($name)*); };
    (@one $time:tt sqlite: $($name:ident),*) => { $crate::on_stores!(@module $time sqlite Sqlite $($name)*); };
    (@one $time:tt mongodb: $($name:ident),*) => { $crate::on_stores!(@module $time mongodb MongoDb $($name)*); };
    (@module $time:tt $module:ident $kind:ident $($name:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    $crate::on_stores!(@run $time $kind $name);
                }
            )*
        }
    };
    (@run [] $kind:ident $name:ident) => {
        $crate::place::run($crate::place::Kind::$kind, super::$name)
    };
    (@run [$time:ident] $kind:ident $name:ident) => {
        $crate::place::run_steadily(super::$time, $crate::place::Kind::$kind, super::$name)
    };
    (@each $time:tt $names:tt $($store:ident)*) => { $( $crate::on_stores!(@unwrap $time $store $names); )* };
    (@unwrap $time:tt $store:ident [$($name:ident),*]) => { $crate::on_stores!(@one $time $store: $($name),*); };
    (steadily $time:ident, $($store:ident),+: $($name:ident),+ $(,)?) => {
        $crate::on_stores!(@each [$time] [$($name),+] $($store)+);
    };
    ($($store:ident),+: $($name:ident),+ $(,)?) => { $crate::on_stores!(@each [] [$($name),+] $($store)+); };
}
