//! Where it all happens: a database that can be taken away, a journal, and workers.

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use milestone_examples::bank::Bank;
use milestone_runtime::Runtime;
use milestone_tests::{
    own_server::OwnServer, place::mongodb_uri, proxy::Proxy, worker_process::Program,
};
use tempfile::TempDir;
use tokio::sync::Mutex as Turn;

/// Short, so that much is lost and found again.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const POLL: Duration = Duration::from_millis(200);

/// Which database.
pub(crate) enum Where {
    /// A MongoDB server of one's own, which can be killed.
    OwnServer,
    /// A MongoDB server that somebody else runs.
    Server(String),
    /// A file.
    Sqlite,
}

impl Where {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::OwnServer => "MongoDB, a server of its own",
            Self::Server(_) => "MongoDB, at the URI that was given: it is not restarted",
            Self::Sqlite => "SQLite",
        }
    }

    /// The database, and a server to be held as long as it is used.
    pub(crate) async fn open(&self, folder: &TempDir) -> (String, Option<OwnServer>) {
        let database = format!("torture_{}", std::process::id());
        match self {
            Self::Sqlite => {
                let path = folder.path().join("torture.db");
                (format!("sqlite:{}", path.display()), None)
            }
            Self::Server(uri) => (mongodb_uri(uri, &database), None),
            Self::OwnServer => {
                let server = OwnServer::start().await;
                (mongodb_uri(&server.uri(), &database), Some(server))
            }
        }
    }
}

pub(crate) struct Stage {
    /// How workers are started. Their way to a server leads through the proxy.
    pub(crate) program: Program,
    pub(crate) server: Option<Turn<OwnServer>>,
    pub(crate) proxy: Option<Proxy>,
    /// For whoever starts, resolves and looks on. It sees the server as it is.
    pub(crate) client: Runtime,
    pub(crate) bank: Bank,
    /// How often the plain action of a milestone may have begun, where that is more than once.
    pub(crate) allowed: Mutex<HashMap<String, usize>>,
    folder: PathBuf,
    kept: AtomicBool,
}

impl Stage {
    pub(crate) async fn new(place: Where) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let (uri, server) = place.open(&folder).await;
        let builder = Runtime::builder(&uri).client().poll(POLL);
        let client = builder.build().await.expect("a client");
        let bank = Bank::open(&uri).await.expect("a bank");
        let host = uri.strip_prefix("mongodb://").and_then(|rest| {
            let (host, _) = rest.split_once('/')?;
            Some(host.to_owned())
        });
        let (proxy, behind) = match host {
            Some(host) => {
                let proxy = Proxy::to(host.clone()).await;
                let behind = uri.replace(&host, &proxy.address().to_string());
                (Some(proxy), behind)
            }
            None => (None, uri),
        };
        Self {
            program: Program {
                path: worker_program(),
                uri: behind,
                journal: folder.path().join("journal"),
                errors: Some(folder.path().join("errors")),
                lease: LEASE,
                poll: POLL,
            },
            server: server.map(Turn::new),
            proxy,
            client,
            bank,
            allowed: Mutex::default(),
            folder: folder.keep(),
            kept: AtomicBool::new(false),
        }
    }

    /// What the workers said on their standard error that tells of a panic which no action made.
    pub(crate) fn panics(&self) -> Vec<String> {
        let errors = self.program.errors.as_ref();
        let text = errors.and_then(|errors| std::fs::read_to_string(errors).ok());
        let text = text.unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains("panicked at"));
        lines.map(str::to_owned).collect()
    }

    pub(crate) fn allow_again(&self, id: &str) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        *allowed.entry(id.to_owned()).or_insert(1) += 1;
    }

    /// Lets the folder stay, for whoever looks into what was found.
    pub(crate) fn keep(&self) -> &Path {
        self.kept.store(true, Ordering::SeqCst);
        &self.folder
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::SeqCst) {
            // It is a temporary one, and is of no use to anybody.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Cargo builds it beside this program.
pub(crate) fn worker_program() -> PathBuf {
    let own = env::current_exe().expect("this program has a path");
    let path = own.with_file_name("torture_worker");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}
