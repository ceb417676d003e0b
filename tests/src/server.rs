//! The MongoDB server of the tests: a database of its own for every test, and failures on demand.

use std::{
    env,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    thread,
};

use bson::{Document, doc, oid::ObjectId};
use mongodb::{Client, options::ClientOptions};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// A server has one fail point of a kind, so tests that need it take turns.
static FAIL_POINT: LazyLock<Arc<Turn<()>>> = LazyLock::new(Arc::default);

/// The URI of the server.
///
/// # Panics
/// If there is none: tests of MongoDB are never skipped.
pub fn uri() -> String {
    env::var("MILESTONE_TEST_URI")
        .ok()
        .filter(|uri| !uri.is_empty())
        .expect("MILESTONE_TEST_URI is not set: run `cargo xtask test`, or set it to the URI that `cargo xtask server` prints")
}

/// Whether the server only presents itself as MongoDB. It is told apart for what it lacks, never for what is tested.
///
/// # Panics
/// If there is no server.
pub async fn is_compatible() -> bool {
    let client = Client::with_uri_str(uri())
        .await
        .expect("MILESTONE_TEST_URI is a URI of MongoDB");
    let build = client
        .database("admin")
        .run_command(doc! { "buildInfo": 1 })
        .await;
    build
        .expect("the server tells what it is")
        .contains_key("secantusVersion")
}

/// A database that nobody else uses, on the server of the tests. It is dropped at the end, after a failure too.
pub struct Scratch {
    name: String,
    client: Client,
    /// Held from the first failure on, until they end.
    turn: Mutex<Option<OwnedMutexGuard<()>>>,
}

impl Scratch {
    /// A new one, empty, with a client on the runtime of the test.
    ///
    /// # Panics
    /// If there is no server.
    pub async fn new() -> Self {
        let name = format!("milestone_test_{}", ObjectId::new());
        let options = ClientOptions::parse(uri())
            .await
            .expect("MILESTONE_TEST_URI is a URI of MongoDB");
        let client = Client::with_options(options).expect("the options of a URI are good");
        Self {
            name,
            client,
            turn: Mutex::default(),
        }
    }

    /// Its name. It is also the `appName` of [`Scratch::options`], by which failures find their victim.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client that no failure is for.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The database.
    pub fn database(&self) -> mongodb::Database {
        self.client.database(&self.name)
    }

    /// Options for a client of the test's subject.
    ///
    /// # Panics
    /// If there is no server.
    pub async fn options(&self) -> ClientOptions {
        let mut options = ClientOptions::parse(uri())
            .await
            .expect("MILESTONE_TEST_URI is a URI of MongoDB");
        options.app_name = Some(self.name.clone());
        options
    }

    /// Makes commands of the test's subject fail: `data` is that of the fail point `failCommand`, which hits so many times.
    ///
    /// # Panics
    /// If the server knows no fail points; it must be started with `--setParameter enableTestCommands=1`.
    pub async fn fail(&self, times: i32, mut data: Document) {
        data.insert("appName", &self.name);
        if self.turn().is_none() {
            let turn = Arc::clone(&FAIL_POINT).lock_owned().await;
            *self.turn() = Some(turn);
        }
        self.configure(doc! { "times": times }, data).await;
    }

    /// Ends failures that have not hit yet.
    ///
    /// # Panics
    /// As [`Scratch::fail`].
    pub async fn heal(&self) {
        self.configure("off", doc! {}).await;
        *self.turn() = None;
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, Option<OwnedMutexGuard<()>>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn configure(&self, mode: impl Into<bson::Bson>, data: Document) {
        let command =
            doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        let admin = self.client.database("admin");
        admin
            .run_command(command)
            .await
            .expect("the server of the tests has fail points");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The runtime of the test may be ending, and cannot wait here.
        let name = self.name.clone();
        let dropped = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let client = Client::with_uri_str(uri())
                    .await
                    .map_err(std::io::Error::other)?;
                client
                    .database(&name)
                    .drop()
                    .await
                    .map_err(std::io::Error::other)
            })
        });
        if !matches!(dropped.join(), Ok(Ok(()))) {
            eprintln!("the database {} of a test could not be dropped", self.name);
        }
    }
}
