//! Worker processes that are killed around their commit, and one that is frozen in its middle.

use std::{fs, path::PathBuf, time::Duration};

use bson::{Document, doc};
use futures_util::TryStreamExt as _;
use milestone_runtime::{
    Handle, Runtime,
    core::record::{AttemptKind, MilestoneRecord, Status},
    dynamic::Action,
};
use milestone_tests::{
    journal::{self, What},
    look::{attempts, until, until_true},
    own_server::OwnServer,
    payments::{self, audit, balances, from_a_to_b, pay, witnesses},
    place::{bare, mongodb_uri, run_async},
    worker_process::Program,
};
use mongodb::Database;
use tempfile::TempDir;

const LEASE: Duration = Duration::from_secs(1);

/// A server and worker processes. A transaction that a process leaves behind keeps its locks for a minute, longer than a test may take, unless
/// whoever takes over ends it.
struct World {
    server: OwnServer,
    folder: TempDir,
    database: Database,
    client: Runtime,
}

impl World {
    async fn new() -> Self {
        let server = OwnServer::start().await;
        let client = server.client().await;
        let database = client.database("subject");
        payments::open(&database, ["a", "b"]).await;
        let uri = mongodb_uri(&server.uri(), "subject");
        Self {
            client: bare(uri).client().build().await.unwrap(),
            folder: TempDir::new().unwrap(),
            server,
            database,
        }
    }

    fn program(&self) -> Program {
        Program {
            path: PathBuf::from(env!("CARGO_BIN_EXE_tx_worker")),
            uri: mongodb_uri(&self.server.uri(), "subject"),
            journal: self.folder.path().join("journal"),
            errors: None,
            lease: LEASE,
            poll: Duration::from_millis(100),
        }
    }

    async fn start(&self, id: &str, amount: i64) -> Handle<Document> {
        let pay = Action::new("pay").transactional();
        let start = self.client.start("Transfer", pay, from_a_to_b(amount));
        start.id(id).await.unwrap()
    }

    /// A worker of this process.
    async fn worker(&self) -> Runtime {
        let builder = bare(mongodb_uri(&self.server.uri(), "subject"));
        let builder = builder.lease(LEASE).clock_skew(Duration::from_millis(200));
        let runtime = builder.register(pay()).build().await.unwrap();
        runtime.spawn();
        runtime
    }

    async fn is_paid_once(&self, record: &MilestoneRecord) {
        assert_eq!(record.state, Status::Completed, "{record:#?}");
        assert_eq!(audit(&self.database).await, 1);
        let output = record.action("pay").unwrap().1.output.clone();
        assert_eq!(output, Some(990_i64.into()));
    }
}

fn killed(moment: &'static str, is_committed: usize) {
    run_async(async move {
        let world = World::new().await;
        let handle = world.start("t", 10).await;
        let mut doomed = world.program().start_with("doomed", &[moment]);
        assert!(!doomed.wait(), "it is killed");
        assert_eq!(audit(&world.database).await, is_committed);
        let _worker = world.worker().await;
        let completed = |record: &MilestoneRecord| record.state == Status::Completed;
        let record = until(&world.client, handle.id(), completed).await;
        world.is_paid_once(&record).await;
        let attempts = attempts(&record, "pay");
        let first = attempts.last().unwrap();
        assert_eq!(first.kind, Some(AttemptKind::Abandoned), "{record:#?}");
    });
}

#[test]
fn killed_before_its_commit() {
    killed("before-commit", 0);
}

#[test]
fn killed_after_its_commit() {
    killed("after-commit", 1);
}

/// The first worker is frozen between its first read and its first write. Another one takes over, completes, and the witness goes. Then the
/// first one goes on: its writes change nothing.
fn wakes_after_its_successor(amount: i64, is_ended: bool) {
    run_async(async move {
        let world = World::new().await;
        let handle = world.start("t", amount).await;
        let program = world.program();
        let mut zombie = program.start_with("zombie", &["read"]);
        let entries = || journal::read(&program.journal);
        until_true("it has read", || entries().len() == 1).await;
        zombie.freeze();
        let sessions = world
            .database
            .collection::<Document>("_milestones_.sessions");
        assert_eq!(sessions.count_documents(doc! {}).await.unwrap(), 1);
        if !is_ended {
            // Nobody knows of it.
            sessions.delete_many(doc! {}).await.unwrap();
        }
        let _worker = world.worker().await;
        let completed = |record: &MilestoneRecord| record.state == Status::Completed;
        let record = until(&world.client, handle.id(), completed).await;
        assert_eq!(audit(&world.database).await, 1);
        let began = std::time::Instant::now();
        while !witnesses(&world.database).await.is_empty() {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "the witness stays"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = balances(&world.database).await;
        fs::write(program.journal.with_added_extension("go"), "").unwrap();
        zombie.thaw();
        // Its writes are refused, or it is told to stop before.
        tokio::time::sleep(3 * LEASE).await;
        assert_eq!(balances(&world.database).await, before);
        assert_eq!(audit(&world.database).await, 1);
        let after = world
            .client
            .get(handle.id().clone())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(after, record, "it is as the other one left it");
        assert!(!zombie.has_ended(), "it works on");
        if amount == 0 {
            // It wrote all that it had to write; only the witness stood in its way.
            let ended = entries().pop().unwrap();
            assert_eq!((ended.what, &*ended.mark), (What::Ended, "paid"));
        }
        if is_ended {
            let left = sessions.find(doc! {}).await.unwrap();
            let left: Vec<Document> = left.try_collect().await.unwrap();
            let of_the_zombie =
                |session: &Document| session.get_str("worker").unwrap().starts_with("zombie");
            // It goes on in its session, and does not note it again: should it die, that is to be ended, too.
            assert!(left.iter().any(of_the_zombie), "{left:?}");
        }
    });
}

/// Both write to the same accounts.
#[test]
fn a_zombie_cannot_commit_beside_its_successor() {
    wakes_after_its_successor(10, true);
    wakes_after_its_successor(10, false);
}

/// Nothing that they write is the same, but for the witness, which is gone by then.
#[test]
fn a_zombie_collides_with_a_witness_that_is_gone() {
    wakes_after_its_successor(0, false);
}
