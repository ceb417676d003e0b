//! A server, workers in this process, and what must be true in the end.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bson::Document;
use milestone_runtime::{
    Filter, Handle, Runtime, RuntimeBuilder,
    core::record::{MilestoneRecord, Status},
};
use milestone_tests::{
    journal::{self, Journal},
    load::{Kind, Load, paced, with_actions},
    own_server::OwnServer,
    place::{bare, mongodb_uri},
    verdict::{by_milestone, judge},
};
use tempfile::TempDir;

pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// Where nobody may lose a lease that he can hold, though many servers and workers share the machine.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(4);

pub(crate) struct Bench {
    pub(crate) server: OwnServer,
    pub(crate) lease: Duration,
    folder: TempDir,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with_lease(LEASE).await
    }

    pub(crate) async fn with_lease(lease: Duration) -> Self {
        Self {
            server: OwnServer::start().await,
            lease,
            folder: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn uri(&self) -> String {
        mongodb_uri(&self.server.uri(), "subject")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// A builder for a worker that has the actions of the load.
    pub(crate) fn builder(&self, uri: &str) -> RuntimeBuilder {
        let load = Arc::new(Load {
            journal: Journal::open(&self.journal()).unwrap(),
            bank: None,
            runtime: OnceLock::new(),
        });
        with_actions(bare(uri).lease(self.lease), &load)
    }

    /// A worker at work.
    pub(crate) async fn worker(&self) -> Runtime {
        let runtime = self.builder(&self.uri()).build().await.unwrap();
        runtime.spawn();
        runtime
    }

    /// Waits until the milestone has ended, as its kind says, and looks at everything that is known of it.
    pub(crate) async fn ends_well(&self, started: &Started) -> MilestoneRecord {
        self.ends_with(started, 1).await
    }

    /// The same, of one whose plain action may have begun so many times.
    pub(crate) async fn ends_with(&self, started: &Started, allowed: usize) -> MilestoneRecord {
        let record = started.handle.ended().await.unwrap();
        assert_eq!(record.state, started.kind.ends(), "{record:#?}");
        let entries = by_milestone(journal::read(&self.journal()));
        let problems = judge(&record, &entries[&record.id.to_string()], |_| allowed);
        assert!(
            problems.is_empty(),
            "{problems:#?}\n{record:#?}\n{:#?}",
            entries[&record.id.to_string()]
        );
        MilestoneRecord::clone(&record)
    }
}

/// A milestone that is stored.
pub(crate) struct Started {
    pub(crate) kind: Kind,
    pub(crate) handle: Handle<Document>,
}

/// Starts milestones of several kinds all at once, with ids of one beginning.
pub(crate) async fn start_many(
    runtime: &Runtime,
    name: &str,
    kinds: &[Kind],
    count: usize,
) -> Vec<Started> {
    let starts = (0..count).map(|number| {
        let kind = kinds[number % kinds.len()];
        let parameters = paced(Duration::from_millis(50));
        let start = runtime.start(kind.name(), kind.graph(), parameters);
        async move {
            let handle = start.id(format!("{name}-{number}")).await.unwrap();
            Started { kind, handle }
        }
    });
    futures_util::future::join_all(starts).await
}

/// How many milestones are in that state; while the server is away, nobody knows.
pub(crate) async fn count(runtime: &Runtime, state: Status) -> Option<u64> {
    runtime.count(Filter::new().state(state)).await.ok()
}
