//! The embedded store: the conformance suite, and what only it does.

mod claims;
mod files;
mod groups;
mod hints;
mod liveness;
mod processes;
mod support;

use std::{path::PathBuf, sync::Arc};

use bson::Document;
use milestone_core::record::MilestoneId;
use milestone_runtime::{
    store::{Store, sqlite::SqliteStore},
    testing::conformance::{self, Subject, SubjectFuture},
};
use tempfile::TempDir;

/// A file in a folder of its own; each handle is a store of its own, as other processes have it.
struct File {
    folder: TempDir,
    first: Arc<SqliteStore>,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Arc::new(
            SqliteStore::open_file(folder.path().join("a bank.db"), "_milestones_")
                .expect("a store"),
        );
        Self { folder, first }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("a bank.db")
    }
}

impl Subject for File {
    fn store(&self) -> SubjectFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store = SqliteStore::open_file(self.path(), "_milestones_").expect("a store");
            store.open().await.expect("it opens");
            Arc::new(store) as Arc<dyn Store>
        })
    }

    fn plant(&self, document: Document) -> SubjectFuture<'_, ()> {
        Box::pin(async { self.first.plant(document).await.expect("it is planted") })
    }

    fn raw(&self, id: MilestoneId) -> SubjectFuture<'_, Option<Document>> {
        Box::pin(async { self.first.raw(id).await.expect("it is read") })
    }
}

/// A memory is the store itself, so all handles are one.
struct Memory(Arc<SqliteStore>);

impl Subject for Memory {
    fn store(&self) -> SubjectFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            self.0.open().await.expect("it opens");
            Arc::clone(&self.0) as Arc<dyn Store>
        })
    }

    fn plant(&self, document: Document) -> SubjectFuture<'_, ()> {
        Box::pin(async { self.0.plant(document).await.expect("it is planted") })
    }

    fn raw(&self, id: MilestoneId) -> SubjectFuture<'_, Option<Document>> {
        Box::pin(async { self.0.raw(id).await.expect("it is read") })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_of_a_file() {
    conformance::run(async || Arc::new(File::new()) as Arc<dyn Subject>).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_of_a_memory() {
    let memory = async || {
        Arc::new(Memory(Arc::new(
            SqliteStore::memory("_milestones_").expect("a store"),
        ))) as Arc<dyn Subject>
    };
    conformance::run(memory).await;
}
