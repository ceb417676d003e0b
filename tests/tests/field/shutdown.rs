//! Shutting down: by signals to a process, and by callers that come and go.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use milestone_runtime::{
    Handle,
    core::record::{ActionState, AttemptKind, Status},
    dynamic::Action,
};
use milestone_tests::{
    checker::checked,
    ledger::{Ledger, quick},
    look::{action, attempts, successes, until, until_true},
    on_stores,
    place::Place,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::support::{LEASE, hangs};

on_stores!(memory, sqlite, mongodb: f11_callers_of_a_shutdown_may_go);

mod processes {
    use super::*;

    on_stores!(sqlite, mongodb:
        f11_after_the_grace_the_rest_starts_elsewhere,
        f11_a_second_sigterm_ends_the_grace,
    );
}

mod while_the_owner_lives {
    use super::*;

    on_stores!(steadily LEASE, sqlite, mongodb: f11_a_sigterm_lets_an_action_end);
}

/// A worker process in the middle of an action.
struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(place: &Place, hangs_in: &str, lease: Duration, grace: Duration) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mortal"))
            .args([&*place.uri(), hangs_in])
            .arg(lease.as_millis().to_string())
            .arg(grace.as_millis().to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn says(&mut self, expected: &str) {
        let line = self.lines.next_line().await.unwrap();
        assert_eq!(line.as_deref(), Some(expected));
    }

    async fn terminate(&self) {
        let id = self.child.id().expect("it runs").to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(told.unwrap().success());
    }

    /// It ends by itself, in order, and without a panic.
    async fn ends(mut self) {
        self.says("has shut down").await;
        let status = self.child.wait().await.unwrap();
        assert!(status.success(), "{status}");
        let mut errors = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut errors).await.unwrap();
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

/// Starts a milestone, and a process that is in the middle of it.
async fn in_the_middle(
    place: &Place,
    name: &str,
    lease: Duration,
    grace: Duration,
) -> (Handle<bson::Document>, Worker) {
    let client = place.builder().client().build().await.unwrap();
    let graph = Action::new(name).idempotent();
    let handle = client.start("job", graph, ()).await.unwrap();
    let mut worker = Worker::start(place, name, lease, grace);
    if name == "slow" {
        worker.says("begins slow").await;
    } else {
        worker.says(&format!("hangs in {name}")).await;
    }
    (handle, worker)
}

/// F11: a worker is told to end in the middle of an action of four leases. Its lease is renewed until the action has ended, nobody else
/// takes it, and the process ends in order.
async fn f11_a_sigterm_lets_an_action_end(place: Place) {
    let grace = Duration::from_secs(30);
    let (handle, mut worker) = in_the_middle(&place, "slow", LEASE, grace).await;
    let ledger = Ledger::new();
    let builder = place.builder().lease(LEASE);
    let other = builder.register(ledger.gives("slow", 1)).build().await;
    let other = other.unwrap();
    other.spawn();
    worker.terminate().await;
    let mut ends = Vec::new();
    for _ in 0..3 {
        ends.push(handle.record().await.unwrap().lease.unwrap().until);
        tokio::time::sleep(LEASE).await;
    }
    assert!(ends.is_sorted_by(|one, next| one < next), "{ends:?}");
    worker.says("ends slow").await;
    worker.ends().await;
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!((record.epoch, record.report.len()), (1, 1));
    assert_eq!(ledger.count("slow"), 0);
}

/// F11: at the end of the grace period what still runs is cut off and handed back, and another worker starts it at once: the lease of a
/// minute has not ended.
async fn f11_after_the_grace_the_rest_starts_elsewhere(place: Place) {
    let (lease, grace) = (Duration::from_mins(1), Duration::from_millis(500));
    let (handle, worker) = in_the_middle(&place, "root", lease, grace).await;
    let ledger = Ledger::new();
    let builder = place.builder().lease(lease);
    let other = builder.register(ledger.gives("root", 1)).build().await;
    let other = other.unwrap();
    other.spawn();
    let told = Instant::now();
    worker.terminate().await;
    until_true("it starts elsewhere", || ledger.count("root") > 0).await;
    let took = told.elapsed();
    println!("on {:?} it started elsewhere after {took:?}", place.kind());
    assert!(took >= grace && took < 10 * grace, "{took:?}");
    worker.ends().await;
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!(successes(&record, "root"), [Some(true), Some(false)]);
    assert_eq!(
        attempts(&record, "root")[1].kind,
        Some(AttemptKind::Cancelled)
    );
    assert_eq!((record.epoch, record.losses), (2, 0));
    checked(&other).await;
}

/// F11: a second signal, and more of them, end the grace period of an hour. The process ends in order, and what ran is handed back.
async fn f11_a_second_sigterm_ends_the_grace(place: Place) {
    let (lease, grace) = (Duration::from_mins(1), Duration::from_hours(1));
    let (handle, worker) = in_the_middle(&place, "root", lease, grace).await;
    worker.terminate().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let record = handle.record().await.unwrap();
    assert_eq!(action(&record, "root").state, ActionState::Running);
    let told = Instant::now();
    for _ in 0..3 {
        // The process may have ended after the first of them.
        if worker.child.id().is_some() {
            worker.terminate().await;
        }
    }
    worker.ends().await;
    assert!(told.elapsed() < Duration::from_secs(10));
    let record = handle.record().await.unwrap();
    assert!(record.lease.is_none() && record.next.is_some());
    assert_eq!(action(&record, "root").state, ActionState::Ready);
    assert_eq!(record.report[0].kind, Some(AttemptKind::Cancelled));
}

/// F11: those who wait for a shutdown go away, others come, one asks for a shorter grace period, and the runtime itself is dropped. Nothing
/// panics or hangs, and what ran is handed back.
async fn f11_callers_of_a_shutdown_may_go(place: Place) {
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let runtime = place
        .builder()
        .grace(Duration::from_hours(1))
        .register(hangs(&ledger, "a", quick()))
        .build()
        .await
        .unwrap();
    let robot = runtime.spawn();
    let id = runtime.start("a", "a", ()).await.unwrap().id().clone();
    until_true("it runs", || ledger.count(runtime.worker()) > 0).await;
    let waits = tokio::spawn({
        let robot = robot.clone();
        async move { robot.shutdown().await }
    });
    let goes = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown().await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    goes.abort();
    assert!(goes.await.unwrap_err().is_cancelled());
    assert!(!waits.is_finished());
    runtime.shutdown_within(Duration::ZERO).await;
    waits.await.unwrap();
    runtime.shutdown().await;
    let record = until(&client, &id, |record| record.lease.is_none()).await;
    assert_eq!(record.report[0].kind, Some(AttemptKind::Cancelled));

    // It works again, and ends without a word to anybody in the middle of the next shutdown.
    let robot = runtime.spawn();
    until_true("it runs again", || ledger.entries().len() == 2).await;
    let leaves = tokio::spawn(async move { robot.shutdown().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    leaves.abort();
    let _ = leaves.await;
    drop(runtime);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let record = client.get(id).await.unwrap().unwrap();
    assert_eq!(record.state, Status::Running);
    checked(&client).await;
}
