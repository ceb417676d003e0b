//! The store of simulations: the conformance suite.

use std::sync::Arc;

use bson::Document;
use milestone_core::record::MilestoneId;
use milestone_runtime::{
    store::Store,
    testing::{
        MemoryStore,
        conformance::{self, Subject, SubjectFuture},
    },
};

/// A memory is the store itself, so all handles are one.
struct Memory(Arc<MemoryStore>);

impl Subject for Memory {
    fn store(&self) -> SubjectFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::clone(&self.0) as Arc<dyn Store> })
    }

    fn plant(&self, document: Document) -> SubjectFuture<'_, ()> {
        Box::pin(async { self.0.plant(document).expect("it is planted") })
    }

    fn raw(&self, id: MilestoneId) -> SubjectFuture<'_, Option<Document>> {
        Box::pin(async move { self.0.document(&id) })
    }
}

async fn fresh() -> Arc<dyn Subject> {
    Arc::new(Memory(Arc::new(MemoryStore::new())))
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_on_threads() {
    conformance::run(fresh).await;
}

#[tokio::test(start_paused = true)]
async fn conformance_under_a_paused_clock() {
    conformance::run(fresh).await;
}
