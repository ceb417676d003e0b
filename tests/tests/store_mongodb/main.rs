//! The MongoDB store against a server: what every store must do, and what is special about this one.

mod batches;
mod bench;
mod differential;
mod faults;
mod hints;
mod opening;

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use milestone_core::record::MilestoneId;
use milestone_runtime::{
    store::Store,
    testing::conformance::{self, Subject, SubjectFuture},
};
use milestone_tests::server::{Scratch, is_compatible};

struct Place {
    scratch: Scratch,
    deprecated_types: bool,
}

impl Subject for Place {
    fn store(&self) -> SubjectFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            Arc::new(bench::open(self.scratch.options().await, self.scratch.name()).await)
                as Arc<dyn Store>
        })
    }

    fn plant(&self, document: Document) -> SubjectFuture<'_, ()> {
        Box::pin(async move {
            let id = document.get("_id").cloned().expect("an _id");
            let raw = RawDocumentBuf::try_from(&document).expect("BSON");
            let milestones = bench::milestones(&self.scratch);
            milestones
                .replace_one(doc! { "_id": id }, raw)
                .upsert(true)
                .await
                .expect("it is planted");
        })
    }

    fn raw(&self, id: MilestoneId) -> SubjectFuture<'_, Option<Document>> {
        Box::pin(bench::raw(&self.scratch, Bson::from(id)))
    }

    fn has_deprecated_types(&self) -> bool {
        self.deprecated_types
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_does_what_every_store_must_do() {
    // The compatible server changes no document that has a value of such a type.
    let deprecated_types = !is_compatible().await;
    conformance::run(|| async move {
        Arc::new(Place {
            scratch: Scratch::new().await,
            deprecated_types,
        }) as Arc<dyn Subject>
    })
    .await;
}
