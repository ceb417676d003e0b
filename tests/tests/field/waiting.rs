//! Waiting: nothing waits for ever, and what waits costs nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::mongodb::event::{EventHandler, command::CommandEvent};
use milestone_runtime::{
    CommandError, Handle, Method, MilestoneRecord, OutcomeError, Runtime, RuntimeBuilder,
    action::{ActionError, Options, RetryPolicy},
    core::record::{ActionState, Order, Status},
    dynamic::Action,
    store::mongodb::{DEFAULT_COLLECTION, MongoStore},
};
use milestone_tests::{
    checker::checked,
    ledger::{Ledger, quick},
    look::{action, successes, until, until_true},
    on_stores,
    place::{Kind, Place},
};
use rusqlite::Connection;
use tokio::sync::watch;

use super::support::{LEASE, gate};

on_stores!(memory, sqlite, mongodb:
    f43_an_outcome_for_every_end,
    f43_removed_before_and_while_it_is_waited_for,
    f44_what_depends_on_a_failed_branch_is_skipped,
    f44_what_depends_on_a_failed_branch_is_undone,
    f44_what_depends_on_a_branch_in_doubt_waits_for_a_word,
);

mod counted {
    use super::*;

    on_stores!(sqlite, mongodb: f45_a_retry_years_ahead_writes_nothing);
}

/// A worker on which milestones end in every way, and a client that waits for them.
async fn worker_and_client(place: &Place) -> (Runtime, Runtime) {
    let ledger = Ledger::new();
    let worker = place
        .builder()
        .register(ledger.gives("good", 7))
        .register(ledger.fails_for_good("bad"))
        .register(ledger.gives("book", 1).options(quick().undo("unbook")))
        .register(ledger.gives("unbook", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let client = place.builder().client().build().await.unwrap();
    (worker, client)
}

/// F43: a client waits for what a worker elsewhere runs. Failed, cancelled and undone are a typed error each, which tells what there is to
/// tell; whether it was waited for before the end or after it.
async fn f43_an_outcome_for_every_end(place: Place) {
    let (worker, client) = worker_and_client(&place).await;
    let idempotent = |name: &str| Action::new(name).idempotent();

    let good = client.start("good", idempotent("good"), ()).await.unwrap();
    for _ in 0..2 {
        let outputs = good.outcome().await.unwrap();
        assert_eq!(outputs.get_i32("good").unwrap(), 7);
    }

    let failed = client.start("bad", idempotent("bad"), ()).await.unwrap();
    for _ in 0..2 {
        let error = failed.outcome().await.unwrap_err();
        assert_eq!(error.code(), "failed");
        let OutcomeError::Failed { id, action, error } = error else {
            panic!("{error}");
        };
        assert_eq!((&id, &*action), (failed.id(), "bad"));
        assert_eq!(error.message, "bad cannot work");
    }

    let graph = idempotent("book").undo("unbook").next([idempotent("bad")]);
    let undone = client.start("trip", graph, ()).await.unwrap();
    for _ in 0..2 {
        let error = undone.outcome().await.unwrap_err();
        assert_eq!(error.code(), "undone");
        let OutcomeError::Undone { id, action, error } = error else {
            panic!("{error}");
        };
        assert_eq!((&id, &*action), (undone.id(), "bad"));
        assert_eq!(error.message, "bad cannot work");
    }

    let stuck = client.start("stuck", idempotent("unknown"), ()).await;
    let stuck = stuck.unwrap();
    let waiting = tokio::spawn({
        let stuck = stuck.clone();
        async move { stuck.outcome().await }
    });
    stuck.cancel("nobody has it").await.unwrap();
    for error in [
        waiting.await.unwrap().unwrap_err(),
        stuck.outcome().await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "cancelled");
        let OutcomeError::Cancelled { id } = &error else {
            panic!("{error}");
        };
        assert_eq!(id, stuck.id());
    }
    drop(worker);
    checked(&client).await;
}

/// F43: removed before it is waited for, while it is waited for on a client, and while it is waited for on the worker that runs it.
async fn f43_removed_before_and_while_it_is_waited_for(place: Place) {
    let ledger = Ledger::new();
    let (_open, closed) = watch::channel(false);
    let worker = place
        .builder()
        .lease(LEASE)
        .register(gate(&ledger, "gate", &closed, quick()))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let client = place.builder().client().build().await.unwrap();
    let is_removed = |handle: &Handle<_>, error: &OutcomeError| {
        assert_eq!(error.code(), "removed");
        assert!(
            matches!(error, OutcomeError::Removed { id } if id == handle.id()),
            "{error}"
        );
    };
    let waits = client.start("waits", "unknown", ()).await.unwrap();
    let on_client = tokio::spawn({
        let handle = waits.clone();
        async move { handle.outcome().await.unwrap_err() }
    });
    let runs = worker.start("runs", "gate", ()).await.unwrap();
    let on_worker = tokio::spawn({
        let handle = runs.clone();
        async move { handle.outcome().await.unwrap_err() }
    });
    until_true("it runs", || ledger.count(worker.worker()) > 0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    for handle in [&waits, &runs] {
        assert!(client.remove(handle.id().clone()).await.unwrap());
    }
    is_removed(&waits, &on_client.await.unwrap());
    is_removed(&runs, &on_worker.await.unwrap());
    is_removed(&waits, &waits.outcome().await.unwrap_err());
}

/// bad -> never, beside good -> after, both before join -> last, beside a fork of their own.
fn branches() -> Action {
    let bad = Action::new("bad").next(["never"]);
    let good = Action::new("good").next(["after"]);
    let inner = Action::fork("inner").next([bad, good]).done("join");
    Action::fork("outer").next([inner]).done("last")
}

async fn branching(place: &Place, bad: Method, good: Options) -> (Ledger, Runtime) {
    let ledger = Ledger::new();
    let mut builder = place.builder().register(bad);
    for name in ["never", "after", "join", "last", "take-back"] {
        builder = builder.register(ledger.gives(name, name));
    }
    let runtime = builder
        .register(ledger.gives("good", "good").options(good))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    (ledger, runtime)
}

/// F44: a branch fails for good. What depends on it, at any distance, is skipped, the branch beside it ends, and the milestone has failed:
/// nobody waits for anything.
async fn f44_what_depends_on_a_failed_branch_is_skipped(place: Place) {
    let bad = Ledger::new().fails_for_good("bad");
    let (ledger, runtime) = branching(&place, bad, quick()).await;
    let handle = runtime.start("branches", branches(), ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap_err().code(), "failed");
    let record = handle.record().await.unwrap();
    for name in ["never", "join", "last"] {
        assert_eq!(action(&record, name).state, ActionState::Skipped, "{name}");
    }
    for name in ["good", "after"] {
        assert_eq!(successes(&record, name), [Some(true)]);
    }
    assert_eq!(ledger.entries(), ["good", "after"]);
    assert!(record.due.is_empty() && record.next.is_none() && record.lease.is_none());
    checked(&runtime).await;
}

/// F44: where the graph has an undo, what was done is taken back instead, and the milestone is undone.
async fn f44_what_depends_on_a_failed_branch_is_undone(place: Place) {
    let bad = Ledger::new().fails_for_good("bad");
    let (ledger, runtime) = branching(&place, bad, quick().undo("take-back")).await;
    let handle = runtime.start("branches", branches(), ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap_err().code(), "undone");
    let record = handle.record().await.unwrap();
    for name in ["never", "join", "last"] {
        assert_eq!(action(&record, name).state, ActionState::Skipped, "{name}");
    }
    // Whether the other branch had begun is a matter of time; if it had, it was taken back.
    assert_eq!(ledger.count("take-back"), ledger.count("good"));
    assert!(record.due.is_empty() && record.next.is_none() && record.lease.is_none());
    checked(&runtime).await;
}

/// F44: a branch is in doubt. The other one ends, the milestone says that it is in doubt and is held by nobody, and a word from an operator
/// ends it: what depends on the branch is skipped or runs.
async fn f44_what_depends_on_a_branch_in_doubt_waits_for_a_word(place: Place) {
    let bad = Method::new("bad", |call| async move {
        if call.context().attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Err::<(), _>(ActionError::fatal("it is broken"))
    });
    let plain = Options::plain().timeout(Duration::from_millis(50));
    let (_, runtime) = branching(&place, bad.options(plain), quick()).await;
    let in_doubt =
        |record: &MilestoneRecord| record.state == Status::InDoubt && record.lease.is_none();
    let start = async || {
        let handle = runtime.start("branches", branches(), ()).await.unwrap();
        let record = until(&runtime, handle.id(), in_doubt).await;
        assert_eq!(successes(&record, "after"), [Some(true)]);
        assert_eq!(record.next, None, "it costs nobody anything");
        handle
    };
    let applied = start().await;
    applied.resolve_applied("bad", &"by hand").await.unwrap();
    let outputs = applied.outcome().await.unwrap();
    assert_eq!(outputs.get_str("bad").unwrap(), "by hand");
    assert_eq!(outputs.get_str("last").unwrap(), "last");
    let not_applied = start().await;
    not_applied.resolve_not_applied("bad").await.unwrap();
    assert_eq!(not_applied.outcome().await.unwrap_err().code(), "failed");
    let record = not_applied.record().await.unwrap();
    assert_eq!(action(&record, "last").state, ActionState::Skipped);
}

/// Counts what is written to the milestones of a place.
enum Writes {
    /// The version of the data in the file, which changes with every commit of another connection.
    File(Connection),
    /// The commands that reached the server and change something.
    Commands(Arc<AtomicUsize>),
}

impl Writes {
    async fn of(place: &Place) -> (Self, RuntimeBuilder) {
        let builder = place.builder().lease(LEASE);
        let Some(scratch) = place.scratch() else {
            let uri = place.uri();
            let path = uri.strip_prefix("sqlite:").unwrap().to_owned();
            return (Self::File(Connection::open(path).unwrap()), builder);
        };
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let mut options = scratch.options().await;
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            let CommandEvent::Started(started) = event else {
                return;
            };
            let name = &*started.command_name;
            let writes = ["insert", "update", "delete", "findAndModify", "bulkWrite"];
            let target = started.command.get_str(name).ok();
            if writes.contains(&name) && target == Some(DEFAULT_COLLECTION) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }));
        let store = MongoStore::new(options, scratch.name(), DEFAULT_COLLECTION);
        (Self::Commands(count), builder.store(Arc::new(store)))
    }

    /// A number that changes with every write.
    fn mark(&self) -> i64 {
        match self {
            Self::File(connection) => connection
                .query_row("PRAGMA data_version", [], |row| row.get(0))
                .unwrap(),
            Self::Commands(count) => i64::try_from(count.load(Ordering::SeqCst)).unwrap(),
        }
    }
}

/// F45: an action is to be tried again in a year, and another one in a thousand years. Nobody holds the milestones until then, and nothing
/// is written, however many leases and polls pass; a command is still carried out at once.
async fn f45_a_retry_years_ahead_writes_nothing(place: Place) {
    const YEAR: Duration = Duration::from_hours(365 * 24);
    let (writes, builder) = Writes::of(&place).await;
    let ledger = Ledger::new();
    let noted = ledger.clone();
    let snoozes = Method::new("snoozes", move |_| {
        noted.note("snoozes");
        async {
            Err::<(), _>(ActionError::retry_after(
                1_000 * YEAR,
                "in the next millennium",
            ))
        }
    });
    let by_policy = quick().retry(RetryPolicy::new().base(2 * YEAR).cap(2 * YEAR));
    let runtime = builder
        .register(snoozes.options(quick()))
        .register(ledger.fails_first("waits", 1).options(by_policy))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let mut handles = Vec::new();
    for (name, least) in [("waits", YEAR), ("snoozes", 999 * YEAR)] {
        let handle = runtime.start(name, name, ()).await.unwrap();
        let waiting =
            |record: &MilestoneRecord| record.state == Status::Waiting && record.lease.is_none();
        let record = until(&runtime, handle.id(), waiting).await;
        let at = action(&record, name).at.unwrap();
        let wait = at.timestamp_millis() - record.created_at.timestamp_millis();
        assert!(wait >= i64::try_from(least.as_millis()).unwrap(), "{wait}");
        assert_eq!(record.next.unwrap().at, at);
        handles.push(handle);
    }
    let before = writes.mark();
    tokio::time::sleep(4 * LEASE).await;
    assert_eq!(writes.mark(), before, "nothing was written meanwhile");
    assert_eq!(ledger.entries(), ["waits", "snoozes"]);
    handles[0].cancel("too long").await.unwrap();
    assert_ne!(writes.mark(), before, "writes are counted");
    assert_eq!(handles[0].outcome().await.unwrap_err().code(), "cancelled");
    if place.kind() == Kind::MongoDb {
        let order = Order::Retry;
        let error = runtime.command(handles[1].id().clone(), order).await;
        assert!(
            matches!(
                error,
                Err(CommandError::State { .. } | CommandError::Refused { .. })
            ),
            "{error:?}"
        );
    }
}
