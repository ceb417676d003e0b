//! What every row measures on: the server, an empty database or file for each measurement, and the sizes.

use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result};
use bson::oid::ObjectId;
use mongodb::{Client, Database};
use tempfile::TempDir;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// As the targets say.
    Full,
    /// Less of it.
    Quick,
    /// Hardly anything: for the test that all rows work.
    Smoke,
}

/// What every row measures on.
pub(crate) struct Bench {
    /// The server.
    uri: String,
    /// A client of the raw driver, on the runtime of the rows, with the URI's own options.
    pub(crate) client: Client,
    size: Size,
    folder: TempDir,
    files: AtomicUsize,
    databases: Mutex<Vec<String>>,
}

/// A database that nothing else uses. [`Bench::clean`] removes it.
pub(crate) struct Scratch {
    /// What a runtime is built with.
    pub(crate) uri: String,
    /// The same database for the raw driver.
    pub(crate) database: Database,
}

impl Bench {
    pub(crate) async fn new(uri: String, size: Size) -> Result<Self> {
        let client = Client::with_uri_str(&uri)
            .await
            .context("the URI of `--uri`")?;
        let folder = tempfile::Builder::new()
            .prefix("milestone-bench-")
            .tempdir()?;
        Ok(Self {
            uri,
            client,
            size,
            folder,
            files: AtomicUsize::new(0),
            databases: Mutex::default(),
        })
    }

    /// A new and empty database.
    pub(crate) fn database(&self) -> Scratch {
        let name = format!("milestone_bench_{}", ObjectId::new());
        self.databases().push(name.clone());
        Scratch {
            uri: with_database(&self.uri, &name),
            database: self.client.database(&name),
        }
    }

    /// The path of a file that does not exist yet, in a folder that is removed at the end.
    pub(crate) fn file(&self) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.folder.path().join(format!("{number}.db"))
    }

    /// The one of three that goes with the size of this run.
    pub(crate) fn pick<T>(&self, full: T, quick: T, smoke: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Quick => quick,
            Size::Smoke => smoke,
        }
    }

    pub(crate) const fn size(&self) -> Size {
        self.size
    }

    /// Removes the databases that were made so far.
    pub(crate) async fn clean(&self) -> Result<()> {
        let names = std::mem::take(&mut *self.databases());
        for name in names {
            self.client.database(&name).drop().await?;
        }
        Ok(())
    }

    fn databases(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.databases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The URI with this database in its path. One that was there is still that of the credentials.
fn with_database(uri: &str, name: &str) -> String {
    let (address, options) = uri.split_once('?').unwrap_or((uri, ""));
    let scheme = address.find("://").map_or(0, |at| at + 3);
    let (hosts, path) = match address[scheme..].find('/') {
        Some(slash) => address.split_at(scheme + slash),
        None => (address, ""),
    };
    let given = path.trim_start_matches('/');
    let mut options: Vec<String> = options
        .split('&')
        .filter(|option| !option.is_empty())
        .map(str::to_owned)
        .collect();
    let names_source = options
        .iter()
        .any(|option| option.to_ascii_lowercase().starts_with("authsource="));
    if !given.is_empty() && hosts.contains('@') && !names_source {
        options.push(format!("authSource={given}"));
    }
    let options = if options.is_empty() {
        String::new()
    } else {
        format!("?{}", options.join("&"))
    };
    format!("{hosts}/{name}{options}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_stands_in_the_path() {
        assert_eq!(with_database("mongodb://a:1", "x"), "mongodb://a:1/x");
        assert_eq!(with_database("mongodb://a,b/", "x"), "mongodb://a,b/x");
        assert_eq!(
            with_database("mongodb://a/?replicaSet=r", "x"),
            "mongodb://a/x?replicaSet=r"
        );
    }

    #[test]
    fn credentials_stay_those_of_the_database_that_was_given() {
        assert_eq!(
            with_database("mongodb://me:no@a/bank?w=1", "x"),
            "mongodb://me:no@a/x?w=1&authSource=bank"
        );
        assert_eq!(
            with_database("mongodb://me:no@a/bank?authSource=admin", "x"),
            "mongodb://me:no@a/x?authSource=admin"
        );
    }
}
