//! Commands from outside: what each does, in which states, and what it answers.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::time::Duration;

use milestone_runtime::{
    CommandError, Handle, Method, OutcomeError, Runtime, Status,
    action::{ActionError, Options, RetryPolicy},
    core::record::{ActionState, UndoState},
    dynamic::Action,
};
use milestone_tests::{
    flaky::Flaky,
    ledger::{Ledger, quick},
    look::{action, attempts, until, until_true},
    on_stores,
    place::Place,
};
use tokio::sync::watch;

on_stores!(memory, sqlite, mongodb:
    a_cancel_stops_what_runs_and_undoes_what_was_done,
    a_pause_lets_what_runs_end_and_a_resume_goes_on,
    a_failed_milestone_is_retried_from_what_failed,
    f05_a_running_milestone_is_not_retried,
    f05_two_operators_retry_once,
    what_is_in_doubt_is_resolved_as_applied,
    what_is_in_doubt_is_resolved_as_not_applied,
    what_runs_cannot_be_resolved,
    an_undo_that_failed_is_waived,
    f22_an_end_and_a_cancel_race_and_one_of_them_wins,
    a_milestone_that_is_not_there_takes_no_command,
    a_command_waits_for_a_worker,
);

mod in_flight {
    use super::*;

    on_stores!(memory: a_cancel_behind_a_planned_begin_is_heeded);
}

/// An action that runs until it is told to go on, and heeds its cancellation.
fn gate(ledger: &Ledger, name: &'static str, open: &watch::Receiver<bool>) -> Method {
    let (ledger, open) = (ledger.clone(), open.clone());
    Method::new(name, move |call| {
        let (ledger, mut open) = (ledger.clone(), open.clone());
        async move {
            ledger.note(name);
            tokio::select! {
                _ = open.wait_for(|open| *open) => Ok(name),
                () = call.context().cancelled() => Err(ActionError::new("told to stop")),
            }
        }
    })
    .options(quick())
}

async fn a_cancel_stops_what_runs_and_undoes_what_was_done(place: Place) {
    let ledger = Ledger::new();
    let (_open, closed) = watch::channel(false);
    let runtime = place
        .builder()
        .register(ledger.gives("debit", 1).options(quick().undo("refund")))
        .register(ledger.gives("refund", 1).options(quick()))
        .register(gate(&ledger, "gate", &closed))
        .register(ledger.gives("never", 1).options(quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("debit").next([Action::new("gate").next(["never"])]);
    let handle = runtime.start("transfer", graph, ()).await.unwrap();
    until_true("the gate runs", || ledger.count("gate") > 0).await;
    handle
        .cancel("the customer changed her mind")
        .await
        .unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert!(matches!(error, OutcomeError::Cancelled { .. }), "{error}");
    assert_eq!(ledger.entries(), ["debit", "gate", "refund"]);
    let record = handle.record().await.unwrap();
    assert_eq!(action(&record, "never").state, ActionState::Skipped);
    assert_eq!(
        record.unwind.as_ref().unwrap().reason,
        "the customer changed her mind"
    );
    let again = handle.cancel("again").await.unwrap_err();
    assert!(
        matches!(
            again,
            CommandError::State {
                state: Status::Cancelled,
                ..
            }
        ),
        "{again}"
    );
}

async fn a_pause_lets_what_runs_end_and_a_resume_goes_on(place: Place) {
    let ledger = Ledger::new();
    let (open, closed) = watch::channel(false);
    let runtime = place
        .builder()
        .register(gate(&ledger, "gate", &closed))
        .register(ledger.gives("after", 1).options(quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime
        .start("job", Action::new("gate").next(["after"]), ())
        .await
        .unwrap();
    until_true("the gate runs", || ledger.count("gate") > 0).await;
    handle.pause("the bank is closed").await.unwrap();
    let again = handle.pause("again").await.unwrap_err();
    assert!(matches!(again, CommandError::Refused { .. }), "{again}");
    open.send_replace(true);
    let held = until(&runtime, handle.id(), |record| record.lease.is_none()).await;
    assert_eq!(action(&held, "gate").state, ActionState::Completed);
    assert_eq!(action(&held, "after").attempts, 0);
    assert_eq!(held.hold.as_ref().unwrap().reason, "the bank is closed");
    assert!(held.due.is_empty() && held.next.is_none());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ledger.count("after"), 0);
    handle.resume().await.unwrap();
    handle.outcome().await.unwrap();
    assert_eq!(ledger.entries(), ["gate", "after"]);
}

async fn a_failed_milestone_is_retried_from_what_failed(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("first", 1).options(quick()))
        .register(ledger.fails_first("second", 1).options(Options::plain()))
        .register(ledger.gives("third", 3).options(quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("first").next([Action::new("second").next(["third"])]);
    let handle = runtime.start("job", graph, ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert!(matches!(error, OutcomeError::Failed { .. }), "{error}");
    assert_eq!(ledger.count("third"), 0);
    handle.retry().await.unwrap();
    handle.outcome().await.unwrap();
    assert_eq!(ledger.count("first"), 1);
    assert_eq!(ledger.count("third"), 1);
    let record = handle.record().await.unwrap();
    assert_eq!(attempts(&record, "second").len(), 2);
}

/// F05: a retry of a milestone that runs, or that waits for its next attempt, is refused and says why; a second run beside the first does
/// not begin, and the report is that of one history.
async fn f05_a_running_milestone_is_not_retried(place: Place) {
    let ledger = Ledger::new();
    let (open, closed) = watch::channel(false);
    let later = quick().retry(
        RetryPolicy::new()
            .base(Duration::from_hours(1))
            .cap(Duration::from_hours(1)),
    );
    let runtime = place
        .builder()
        .register(gate(&ledger, "gate", &closed))
        .register(ledger.fails_first("later", 1).options(later))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("job", "gate", ()).await.unwrap();
    until_true("the gate runs", || ledger.count("gate") > 0).await;
    for _ in 0..3 {
        let error = handle.retry().await.unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("`retry`") && told.contains("running"),
            "{told}"
        );
    }
    open.send_replace(true);
    handle.outcome().await.unwrap();
    assert_eq!(ledger.count("gate"), 1);
    let record = handle.record().await.unwrap();
    assert_eq!((record.report.len(), record.epoch), (1, 1));

    let waits = runtime.start("job", "later", ()).await.unwrap();
    until(&runtime, waits.id(), |record| {
        record.state == Status::Waiting && record.lease.is_none()
    })
    .await;
    let told = waits.retry().await.unwrap_err().to_string();
    assert!(
        told.contains("`retry`") && told.contains("waiting"),
        "{told}"
    );
    let record = waits.record().await.unwrap();
    assert_eq!((record.state, record.report.len()), (Status::Waiting, 1));
}

/// F05: a failed milestone is retried by two operators at once. One is told that it is too late, and the attempts go on counting.
async fn f05_two_operators_retry_once(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.fails_first("a", 1).options(Options::plain()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("job", "a", ()).await.unwrap();
    handle.outcome().await.unwrap_err();
    let (one, other) = tokio::join!(handle.retry(), handle.retry());
    let done = [&one, &other].into_iter().filter(|told| told.is_ok());
    assert_eq!(done.count(), 1, "{one:?} {other:?}");
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    let numbers = attempts(&record, "a").into_iter().map(|a| a.number);
    assert_eq!(numbers.collect::<Vec<_>>(), [2, 1]);
    assert_eq!(ledger.count("a"), 2);
}

/// A plain action that is cut off in its middle, and one after it.
async fn in_doubt(place: &Place, ledger: &Ledger) -> (Runtime, Handle<bson::Document>) {
    let noted = ledger.clone();
    let pay = Method::new("pay", move |call| {
        let noted = noted.clone();
        async move {
            noted.note("pay");
            if call.context().attempt() == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, ActionError>("paid again")
        }
    });
    let runtime = place
        .builder()
        .register(pay.options(Options::plain().timeout(Duration::from_millis(50))))
        .register(ledger.gives("thank", 1).options(quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime
        .start("order", Action::new("pay").next(["thank"]), ())
        .await
        .unwrap();
    let record = until(&runtime, handle.id(), |record| {
        record.state == Status::InDoubt
    })
    .await;
    assert_eq!(action(&record, "pay").state, ActionState::InDoubt);
    (runtime, handle)
}

async fn what_is_in_doubt_is_resolved_as_applied(place: Place) {
    let ledger = Ledger::new();
    let (_runtime, handle) = in_doubt(&place, &ledger).await;
    let other = handle.resolve_not_applied("thank").await.unwrap_err();
    assert!(
        other.to_string().contains("`thank` is not in doubt"),
        "{other}"
    );
    handle.resolve_applied("pay", &"receipt 7").await.unwrap();
    let outputs = handle.outcome().await.unwrap();
    assert_eq!(outputs.get_str("pay").unwrap(), "receipt 7");
    assert_eq!(ledger.entries(), ["pay", "thank"]);
}

/// A word about an attempt that still runs would be carried out after a crash that nobody had seen when it was said.
async fn what_runs_cannot_be_resolved(place: Place) {
    let hangs = Method::new("pay", |_| std::future::pending::<Result<(), ActionError>>());
    let runtime = place
        .builder()
        .register(hangs.options(Options::plain()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("order", "pay", ()).await.unwrap();
    until(&runtime, handle.id(), |record| {
        action(record, "pay").state == ActionState::Running
    })
    .await;
    let error = handle.resolve_not_applied("pay").await.unwrap_err();
    let reason = "attempt 1 of `pay` is not in doubt";
    assert!(error.to_string().contains(reason), "{error}");
    let record = handle.record().await.unwrap();
    assert_eq!(
        (record.mail, record.inbox.len()),
        (0, 0),
        "nothing was sent"
    );
}

async fn what_is_in_doubt_is_resolved_as_not_applied(place: Place) {
    let ledger = Ledger::new();
    let (_runtime, handle) = in_doubt(&place, &ledger).await;
    handle.resolve_not_applied("pay").await.unwrap();
    let outputs = handle.outcome().await.unwrap();
    assert_eq!(outputs.get_str("pay").unwrap(), "paid again");
    assert_eq!(ledger.entries(), ["pay", "pay", "thank"]);
}

async fn an_undo_that_failed_is_waived(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("book", 1).options(quick().undo("unbook")))
        .register(ledger.fails_for_good("unbook"))
        .register(ledger.fails_for_good("pay"))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime
        .start("trip", Action::new("book").next(["pay"]), ())
        .await
        .unwrap();
    let failed = |record: &milestone_runtime::MilestoneRecord| {
        action(record, "book").undo.as_ref().unwrap().state == UndoState::Failed
    };
    until(&runtime, handle.id(), failed).await;
    handle.waive("book").await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert!(matches!(error, OutcomeError::Undone { .. }), "{error}");
}

async fn f22_an_end_and_a_cancel_race_and_one_of_them_wins(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("only", 1).options(quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    for _ in 0..20 {
        let handle = runtime.start("job", "only", ()).await.unwrap();
        let (cancelled, outcome) = tokio::join!(handle.cancel("a race"), handle.outcome());
        match (cancelled, outcome) {
            (Ok(_), Err(OutcomeError::Cancelled { .. }))
            | (Err(CommandError::State { .. } | CommandError::Refused { .. }), Ok(_)) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(
            milestone_runtime::core::machine::check(&handle.record().await.unwrap()),
            []
        );
    }
}

async fn a_milestone_that_is_not_there_takes_no_command(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("only", 1))
        .build()
        .await
        .unwrap();
    let handle = runtime.start("job", "only", ()).await.unwrap();
    assert!(runtime.remove(handle.id().clone()).await.unwrap());
    let error = handle.cancel("too late").await.unwrap_err();
    assert!(matches!(error, CommandError::Removed { .. }), "{error}");
}

async fn a_command_waits_for_a_worker(place: Place) {
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let handle = client
        .start("job", Action::new("only").idempotent(), ())
        .await
        .unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.cancel("before it began").await }
    });
    until(&client, handle.id(), |record| record.inbox.len() == 1).await;
    let worker = place
        .builder()
        .register(ledger.gives("only", 1).options(quick()))
        .build()
        .await
        .unwrap();
    worker.spawn();
    waiting.await.unwrap().unwrap();
    assert_eq!(handle.status().await.unwrap(), Status::Cancelled);
    assert_eq!(ledger.entries(), Vec::<String>::new());
}

/// A cancel is read while a begin waits for the commit before it to come back. What has not begun in the database does not begin.
async fn a_cancel_behind_a_planned_begin_is_heeded(place: Place) {
    let ledger = Ledger::new();
    let (open, closed) = watch::channel(false);
    let store = Flaky::new(place.store().await);
    let runtime = place
        .builder()
        .store(store.clone())
        .register(gate(&ledger, "first", &closed))
        .register(ledger.gives("second", 1).options(quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("first").next(["second"]);
    let handle = runtime.start("job", graph, ()).await.unwrap();
    until_true("the first one runs", || ledger.count("first") > 0).await;

    // A command that does nothing: its answer is stored, and the worker does not learn of that yet.
    store.hold_replies(true);
    let nothing = tokio::spawn({
        let handle = handle.clone();
        async move { handle.waive("first").await }
    });
    until_true("the answer is stored", || store.replies_held() > 0).await;
    open.send_replace(true);
    let calls = store.calls();
    let cancel = tokio::spawn({
        let handle = handle.clone();
        async move { handle.cancel("too late").await }
    });
    until_true("the cancel is sent, and read", || store.calls() > calls + 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    store.hold_replies(false);

    let error = handle.outcome().await.unwrap_err();
    assert!(matches!(error, OutcomeError::Cancelled { .. }), "{error}");
    assert_eq!(ledger.entries(), ["first"], "the second one never begins");
    let record = handle.record().await.unwrap();
    assert_eq!(action(&record, "first").state, ActionState::Completed);
    assert_eq!(action(&record, "second").state, ActionState::Skipped);
    nothing.await.unwrap().unwrap_err();
    cancel.await.unwrap().unwrap();
}
