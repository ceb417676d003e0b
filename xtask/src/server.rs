//! The MongoDB server of the tests: found, started, described, stopped.

mod compatible;
mod mongod;
mod uri;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use tempfile::TempDir;
use tokio::time::sleep;

pub(crate) use self::uri::{Identity, redacted};
use crate::process::Daemon;
use crate::tools::{on_path, readable};

/// How long a server may take until it accepts writes.
const PATIENCE: Duration = Duration::from_mins(1);
const STEP: Duration = Duration::from_millis(20);

const OVERRIDE: &str = "MILESTONE_TEST_SERVER";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mongod,
    Compatible,
}

impl Kind {
    fn of(binary: &Path) -> Option<Self> {
        let name = binary.file_name()?.to_str()?;
        if name.starts_with("mongod") {
            Some(Self::Mongod)
        } else if name.starts_with("secantusd") {
            Some(Self::Compatible)
        } else {
            None
        }
    }
}

/// A server program on this machine.
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) found: String,
    pub(crate) built_in: Option<Duration>,
    kind: Kind,
}

impl Binary {
    /// The one that the environment names, else a mongod, else the compatible server, built if need be.
    pub(crate) async fn find() -> Result<Self> {
        if let Some(path) = env::var_os(OVERRIDE).filter(|path| !path.is_empty()) {
            return Self::named(Path::new(&path));
        }
        if let Some(path) = on_path("mongod") {
            return Ok(Self {
                path,
                found: "mongod on the PATH".into(),
                built_in: None,
                kind: Kind::Mongod,
            });
        }
        let (path, built_in) = compatible::obtain().await.context(
            "no MongoDB server for the tests: install mongod, or set MILESTONE_TEST_URI to the URI of a server, \
             or MILESTONE_TEST_SERVER to the path of a mongod",
        )?;
        let found = match built_in {
            Some(time) => format!("no mongod on the PATH; built in {}", readable(time)),
            None => "no mongod on the PATH; built earlier".into(),
        };
        Ok(Self {
            path,
            found,
            built_in,
            kind: Kind::Compatible,
        })
    }

    /// When it acknowledges a write, for people.
    pub(crate) const fn sync(&self, options: &Options) -> &'static str {
        match (self.kind, options.durable) {
            (Kind::Mongod, _) => "acknowledged once they are in the journal on disk",
            (Kind::Compatible, true) => "acknowledged once they are in the log on disk",
            (Kind::Compatible, false) => "acknowledged before they are on disk",
        }
    }

    fn named(path: &Path) -> Result<Self> {
        let kind = Kind::of(path).with_context(|| {
            format!(
                "{OVERRIDE} is {}: it must be the path of a mongod or of a secantusd-rs",
                path.display()
            )
        })?;
        let path =
            fs::canonicalize(path).with_context(|| format!("{OVERRIDE} is {}", path.display()))?;
        Ok(Self {
            path,
            found: format!("named by {OVERRIDE}"),
            built_in: None,
            kind,
        })
    }
}

/// How a server is to run.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) port: Option<u16>,
    pub(crate) storage: Option<PathBuf>,
    pub(crate) durable: bool,
}

/// A server that accepts writes. Dropped, it is stopped, and its temporary folder removed.
pub(crate) struct Running {
    pub(crate) uri: String,
    identity: Identity,
    binary: PathBuf,
    found: String,
    // Before the folder: fields are dropped in order, and the folder is in use until the server has ended.
    daemon: Daemon,
    _folder: TempDir,
}

impl Running {
    pub(crate) async fn start(binary: &Binary, options: &Options) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("milestone-server-")
            .tempdir()?;
        let storage = match &options.storage {
            Some(storage) => std::path::absolute(storage)?,
            None => folder.path().join("data"),
        };
        fs::create_dir_all(&storage)
            .with_context(|| format!("could not create {}", storage.display()))?;
        let mut command = Command::new(&binary.path);
        // A configuration file or a log filter of whoever runs the tests must not reach the server.
        command.current_dir(folder.path()).env_remove("RUST_LOG");

        let log = folder.path().join("server.log");
        let started = Instant::now();
        let (mut daemon, address) = match binary.kind {
            Kind::Compatible => {
                compatible::arguments(&mut command, options, &storage);
                let mut daemon = Daemon::start(command, &log)?;
                let address = compatible::address(&mut daemon, started + PATIENCE).await?;
                (daemon, address)
            }
            Kind::Mongod => {
                let address = mongod::arguments(&mut command, options, &storage)?;
                let mut daemon = Daemon::start(command, &log)?;
                mongod::initiate(&mut daemon, &address, started + PATIENCE).await?;
                (daemon, address)
            }
        };
        let uri = format!("mongodb://{address}");
        let identity = Identity::of_primary(&uri, &mut daemon, started + PATIENCE).await?;
        Ok(Self {
            uri,
            identity,
            binary: binary.path.clone(),
            found: binary.found.clone(),
            daemon,
            _folder: folder,
        })
    }

    /// What it is and how it was found, on two lines.
    pub(crate) fn description(&self) -> String {
        let path = self.binary.display();
        format!(
            "server    {}\nfound     {}: {path}",
            self.identity, self.found
        )
    }

    /// The error to report if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        alive(&mut self.daemon)
    }

    /// Waits for an end that nobody asked for.
    pub(crate) async fn ended_by_itself(&mut self) -> Error {
        loop {
            match self.check() {
                Ok(()) => sleep(10 * STEP).await,
                Err(error) => return error,
            }
        }
    }
}

/// An error with the server's last words if it has ended.
fn alive(daemon: &mut Daemon) -> Result<()> {
    match daemon.ended()? {
        None => Ok(()),
        Some(status) => Err(anyhow!(
            "the server ended by itself ({status}); its last words:\n{}",
            daemon.last_words()
        )),
    }
}

/// Waits a moment for a server that is starting; an error if it has ended or the time is over.
async fn next_try(daemon: &mut Daemon, deadline: Instant) -> Result<()> {
    alive(daemon)?;
    if Instant::now() > deadline {
        bail!(
            "the server was not ready in {}; its last words:\n{}",
            readable(PATIENCE),
            daemon.last_words()
        );
    }
    sleep(STEP).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_says_which_server_it_is() {
        let kind = |path: &str| Kind::of(Path::new(path));
        assert_eq!(kind("/usr/bin/mongod"), Some(Kind::Mongod));
        assert_eq!(kind("mongod-8.0"), Some(Kind::Mongod));
        assert_eq!(kind("a/secantusd-rs"), Some(Kind::Compatible));
        assert_eq!(kind("/usr/bin/postgres"), None);
        assert_eq!(kind("/"), None);
    }
}
