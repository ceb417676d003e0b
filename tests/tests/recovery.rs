//! Workers that die, hang, block or shut down: what they leave is found, run again where that is safe, and never twice where not.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use milestone_runtime::{
    Handle, Method, Runtime,
    action::{ActionError, Options},
    core::record::{ActionState, AttemptKind, MilestoneRecord, Status},
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
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

on_stores!(memory, sqlite, mongodb:
    s19_an_abandoned_root_runs_again,
    s19_an_abandoned_next_runs_again,
    s19_an_abandoned_done_runs_again,
    s19_an_abandoned_plain_action_is_in_doubt,
    shutdown_waits_for_what_runs,
    shutdown_hands_back_what_is_idempotent,
    shutdown_leaves_plain_actions_in_doubt,
    nothing_begins_during_a_shutdown,
);

mod while_the_owner_lives {
    use super::*;

    on_stores!(steadily LEASE, memory, sqlite, mongodb:
        s19_what_is_still_running_is_not_abandoned,
        a_blocked_executor_loses_no_lease,
    );
}

mod killed {
    use super::*;

    on_stores!(sqlite, mongodb:
        s23_killed_in_the_root,
        s23_killed_in_a_next,
        s23_killed_in_a_grandchild,
        s23_killed_in_done,
    );
}

const LEASE: Duration = Duration::from_millis(500);

/// An action that notes its name and then never ends.
fn hangs(ledger: &Ledger, name: &'static str, options: Options) -> Method {
    let ledger = ledger.clone();
    Method::new(name, move |_| {
        ledger.note(format!("{name} hangs"));
        std::future::pending::<Result<(), ActionError>>()
    })
    .options(options)
}

const ACTIONS: [&str; 3] = ["root", "next", "done"];

/// A worker that hangs in one of the actions.
async fn worker(
    place: &Place,
    ledger: &Ledger,
    hangs_in: &'static str,
    options: Options,
) -> Runtime {
    let mut builder = place.builder().lease(LEASE);
    for name in ACTIONS {
        builder = builder.register(if name == hangs_in {
            hangs(ledger, name, options)
        } else {
            ledger.gives(name, name).options(options)
        });
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    runtime
}

/// Drops a worker in the middle of an action and lets another one finish.
async fn abandoned(place: &Place, hangs_in: &'static str) {
    let ledger = Ledger::new();
    let first = worker(place, &ledger, hangs_in, quick()).await;
    let name = first.worker().to_owned();
    let graph = Action::new("root").next(["next"]).done("done");
    let id = first.start("tree", graph, ()).await.unwrap().id().clone();
    let entry = format!("{hangs_in} hangs");
    until_true("the action hangs", || ledger.count(&entry) > 0).await;
    // The last clone: it dies without a word.
    drop(first);

    let second = worker(place, &ledger, "none", quick()).await;
    let record = until(&second, &id, |record| record.state == Status::Completed).await;
    assert_eq!(successes(&record, hangs_in), [Some(true), None]);
    let old = attempts(&record, hangs_in)[1];
    assert_eq!((old.number, old.kind), (1, Some(AttemptKind::Abandoned)));
    assert_eq!((&*old.worker, &old.error), (&*name, &None));
    for name in ACTIONS {
        assert_eq!(ledger.count(name), 1, "{name} is run to its end once");
    }
    assert_eq!(ledger.count(&entry), 1);
    assert!(record.epoch > 1);
}

async fn s19_an_abandoned_root_runs_again(place: Place) {
    abandoned(&place, "root").await;
}

async fn s19_an_abandoned_next_runs_again(place: Place) {
    abandoned(&place, "next").await;
}

async fn s19_an_abandoned_done_runs_again(place: Place) {
    abandoned(&place, "done").await;
}

async fn s19_an_abandoned_plain_action_is_in_doubt(place: Place) {
    let ledger = Ledger::new();
    let first = worker(&place, &ledger, "next", Options::plain()).await;
    let graph = Action::new("root").next(["next"]).done("done");
    let id = first.start("tree", graph, ()).await.unwrap().id().clone();
    until_true("the action hangs", || ledger.count("next hangs") > 0).await;
    drop(first);
    let second = worker(&place, &ledger, "none", Options::plain()).await;
    let record = until(&second, &id, |record| record.state == Status::InDoubt).await;
    assert_eq!(successes(&record, "next"), [None]);
    assert_eq!(record.report[0].kind, Some(AttemptKind::Abandoned));
    let doubt = action(&record, "next");
    assert_eq!(doubt.state, ActionState::InDoubt);
    assert!(doubt.settle_after.is_some());
    tokio::time::sleep(2 * LEASE).await;
    assert_eq!(
        ledger.entries(),
        ["root", "next hangs"],
        "it is not run twice"
    );
    assert_eq!(action(&record, "done").state, ActionState::Pending);
}

async fn s19_what_is_still_running_is_not_abandoned(place: Place) {
    let ledger = Ledger::new();
    let slow = |ledger: &Ledger| {
        let ledger = ledger.clone();
        Method::new("slow", move |_| {
            ledger.note("slow");
            async move {
                tokio::time::sleep(3 * LEASE).await;
                Ok::<_, ActionError>(())
            }
        })
        .options(quick())
    };
    let mut runtimes = Vec::new();
    for _ in 0..2 {
        let builder = place.builder().lease(LEASE).register(slow(&ledger));
        let runtime = builder.build().await.unwrap();
        runtime.spawn();
        runtimes.push(runtime);
    }
    let handle = runtimes[0].start("slow", "slow", ()).await.unwrap();
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!((record.epoch, record.report.len()), (1, 1));
    assert_eq!(ledger.count("slow"), 1);
}

/// An action blocks the only thread of its application for three leases, while another worker stands by.
async fn a_blocked_executor_loses_no_lease(place: Place) {
    let runs = Arc::new(AtomicUsize::new(0));
    let blocking = |runs: &Arc<AtomicUsize>| {
        let runs = Arc::clone(runs);
        Method::new("blocks", move |_| {
            let runs = Arc::clone(&runs);
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                thread::sleep(3 * LEASE);
                Ok::<_, ActionError>(())
            }
        })
        .options(quick())
    };
    let other = place
        .builder()
        .lease(LEASE)
        .register(blocking(&runs))
        .build()
        .await
        .unwrap();
    let builder = place.builder().lease(LEASE).register(blocking(&runs));
    // The application has one thread, and its action blocks it.
    let application = thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio.block_on(async {
            let runtime = builder.build().await.unwrap();
            runtime.spawn();
            let handle = runtime
                .start("blocks", "blocks", ())
                .id("one")
                .await
                .unwrap();
            handle.outcome().await.unwrap();
        });
    });
    until_true("the action blocks", || runs.load(Ordering::SeqCst) > 0).await;
    other.spawn();
    until_true("it has ended", || application.is_finished()).await;
    application.join().unwrap();
    let record = other.get("one").await.unwrap().unwrap();
    assert_eq!((record.state, record.epoch), (Status::Completed, 1));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

async fn shutdown_waits_for_what_runs(place: Place) {
    let ledger = Ledger::new();
    let slow = {
        let ledger = ledger.clone();
        Method::new("slow", move |_| {
            let ledger = ledger.clone();
            async move {
                ledger.note("begins");
                tokio::time::sleep(Duration::from_millis(300)).await;
                ledger.note("ends");
                Ok::<_, ActionError>(())
            }
        })
    };
    let runtime = place
        .builder()
        .register(slow)
        .register(ledger.gives("next", 1))
        .build()
        .await
        .unwrap();
    let robot = runtime.spawn();
    let graph = Action::new("slow").next(["next"]);
    let handle = runtime.start("chain", graph, ()).await.unwrap();
    until_true("it runs", || ledger.count("begins") > 0).await;
    robot.shutdown().await;
    assert_eq!(ledger.entries(), ["begins", "ends"]);
    let record = handle.record().await.unwrap();
    assert_eq!(successes(&record, "slow"), [Some(true)]);
    assert_eq!(action(&record, "next").state, ActionState::Ready);
    assert!(
        record.lease.is_none() && record.next.is_some(),
        "it is handed back"
    );
}

/// Shuts a worker down in the middle of an action that does not end, and gives the milestone as it is then.
async fn cut_off(place: &Place, ledger: &Ledger, options: Options) -> MilestoneRecord {
    let builder = place.builder().register(hangs(ledger, "a", options));
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let handle = runtime.start("a", "a", ()).await.unwrap();
    until_true("it runs", || ledger.count("a hangs") > 0).await;
    let began = Instant::now();
    runtime.shutdown_within(Duration::from_millis(100)).await;
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let record = handle.record().await.unwrap();
    assert!(record.lease.is_none(), "it is handed back");
    assert_eq!(record.report[0].kind, Some(AttemptKind::Cancelled));
    record
}

async fn shutdown_hands_back_what_is_idempotent(place: Place) {
    let ledger = Ledger::new();
    let record = cut_off(&place, &ledger, quick()).await;
    assert_eq!(successes(&record, "a"), [Some(false)]);
    assert_eq!(action(&record, "a").state, ActionState::Ready);
    assert_eq!(
        action(&record, "a").failures,
        0,
        "a shutdown is not the action's failure"
    );
    // It starts elsewhere at once, long before the lease of ten seconds would have ended.
    let builder = place.builder().register(ledger.gives("a", 1));
    let other = builder.build().await.unwrap();
    let began = Instant::now();
    other.spawn();
    until(&other, &record.id, |record| {
        record.state == Status::Completed
    })
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

async fn shutdown_leaves_plain_actions_in_doubt(place: Place) {
    let ledger = Ledger::new();
    let record = cut_off(&place, &ledger, Options::plain()).await;
    assert_eq!(record.state, Status::InDoubt);
    assert_eq!(successes(&record, "a"), [None]);
    assert_eq!(action(&record, "a").state, ActionState::InDoubt);
    assert_eq!(record.next, None, "nobody runs it again by himself");
}

async fn nothing_begins_during_a_shutdown(place: Place) {
    let ledger = Ledger::new();
    let slow = Method::new("slow", |_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, ActionError>(())
    });
    let runtime = place
        .builder()
        .register(slow)
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let slow = runtime.start("slow", "slow", ()).await.unwrap();
    until(&runtime, slow.id(), |record| {
        record.state == Status::Running
    })
    .await;
    let stopping = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown().await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let late = runtime.start("a", "a", ()).await.unwrap();
    stopping.await.unwrap();
    assert_eq!(slow.status().await.unwrap(), Status::Completed);
    assert_eq!(late.status().await.unwrap(), Status::Pending);
    assert_eq!(ledger.count("a"), 0);
}

/// Kills a worker in the middle of an action, as the system does it when memory is short, and lets another one finish.
async fn killed(place: Place, hangs_in: &'static str, finished: &[&str]) {
    let client = place.builder().client().build().await.unwrap();
    // A client does not know the actions, so it is said here that they may run again.
    let idempotent = |name: &str| Action::new(name).idempotent();
    let left = idempotent("left").next([idempotent("deep")]);
    let graph = idempotent("root")
        .next([left, idempotent("right")])
        .done(idempotent("done"));
    let handle: Handle<_> = client.start("tree", graph, ()).await.unwrap();
    let mut mortal = Command::new(env!("CARGO_BIN_EXE_mortal"))
        .args([&*place.uri(), hangs_in])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(mortal.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line == format!("hangs in {hangs_in}") {
            break;
        }
    }
    until(&client, handle.id(), |record| {
        finished
            .iter()
            .all(|name| action(record, name).state == ActionState::Completed)
    })
    .await;
    mortal.kill().await.unwrap();

    let ledger = Ledger::new();
    let mut builder = place.builder().lease(LEASE);
    for name in ["root", "left", "deep", "right", "done"] {
        builder = builder.register(ledger.gives(name, name));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    for name in finished {
        assert_eq!(ledger.count(name), 0, "{name} had ended");
        assert_eq!(successes(&record, name), [Some(true)]);
    }
    assert_eq!(successes(&record, hangs_in), [Some(true), None]);
    let old = attempts(&record, hangs_in)[1];
    assert_eq!(old.kind, Some(AttemptKind::Abandoned));
    assert_eq!(record.losses, 0, "a milestone that goes on is no suspect");
    assert_eq!(ledger.entries().len(), 5 - finished.len());
    checked(&client).await;
}

async fn s23_killed_in_the_root(place: Place) {
    killed(place, "root", &[]).await;
}

async fn s23_killed_in_a_next(place: Place) {
    killed(place, "left", &["root", "right"]).await;
}

async fn s23_killed_in_a_grandchild(place: Place) {
    killed(place, "deep", &["root", "left", "right"]).await;
}

async fn s23_killed_in_done(place: Place) {
    killed(place, "done", &["root", "left", "right", "deep"]).await;
}
