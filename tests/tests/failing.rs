//! Actions that fail: what is recorded, what is tried again, what is kept, and how it ends.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::{Bson, doc};
use milestone_runtime::{
    Method, OutcomeError,
    action::{ActionError, Call, Options, RetryPolicy},
    core::record::{ActionState, AttemptKind, Status},
    dynamic::Action,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    look::{action, attempts, successes, until},
    on_stores,
    place::Place,
};
use tokio::sync::Notify;

on_stores!(memory, sqlite, mongodb:
    s13_a_failure_is_recorded_and_the_milestone_stays_open,
    s14_fails_twice_then_succeeds,
    s15_only_the_failed_action_of_a_chain_runs_again,
    s16_the_result_of_a_slow_sibling_is_kept,
    s17_any_value_is_a_failure,
    independent_branches_finish_before_it_is_failed,
    a_plain_action_is_not_retried,
    retry_after_is_heeded,
    retries_are_used_up,
    f02_a_timeout_is_a_failed_attempt,
    a_plain_action_that_times_out_is_in_doubt,
    an_error_may_say_that_nobody_knows,
);

/// Waits an hour after a failure, so that a test sees the milestone between two attempts.
const SLOW: RetryPolicy = RetryPolicy::new()
    .base(Duration::from_hours(1))
    .cap(Duration::from_hours(1));

async fn s13_a_failure_is_recorded_and_the_milestone_stays_open(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(
            ledger
                .fails_first("debit", 1)
                .options(Options::idempotent().retry(SLOW)),
        )
        .register(ledger.gives("credit", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("debit").next(["credit"]);
    let handle = runtime.start("transfer", graph, ()).await.unwrap();
    let record = until(&runtime, handle.id(), |record| {
        record.state == Status::Waiting && record.lease.is_none()
    })
    .await;
    let failed = attempts(&record, "debit");
    assert_eq!(failed.len(), 1);
    let failed = failed[0];
    assert_eq!(
        (failed.number, failed.success, failed.kind),
        (1, Some(false), None)
    );
    assert!(failed.end_date >= failed.begin_date);
    assert_eq!(failed.worker, runtime.worker());
    let error = failed.error.as_ref().unwrap();
    assert_eq!(error.message, "debit does not work yet");
    assert!(
        error.location.as_deref().unwrap().contains("ledger.rs:"),
        "{error:?}"
    );
    assert!(
        error.backtrace.as_deref().unwrap().contains("ledger"),
        "{error:?}"
    );

    assert_eq!(record.end_date, None);
    assert_eq!(action(&record, "debit").state, ActionState::Backoff);
    let wait = action(&record, "debit").at.unwrap().timestamp_millis()
        - failed.end_date.timestamp_millis();
    assert!((1_800_000..=3_600_000).contains(&wait), "{wait}");
    assert_eq!(action(&record, "credit").state, ActionState::Pending);
    assert_eq!(ledger.entries(), ["debit"]);
}

async fn s14_fails_twice_then_succeeds(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("before", 1))
        .register(ledger.fails_first("debit", 2))
        .register(ledger.gives("credit", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("before").next([Action::new("debit").next(["credit"])]);
    let handle = runtime.start("transfer", graph, ()).await.unwrap();
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!(
        successes(&record, "debit"),
        [Some(true), Some(false), Some(false)]
    );
    let numbers: Vec<_> = attempts(&record, "debit")
        .iter()
        .map(|a| a.number)
        .collect();
    assert_eq!(numbers, [3, 2, 1]);
    assert_eq!(
        ledger.entries(),
        ["before", "debit", "debit", "debit", "credit"]
    );
}

async fn s15_only_the_failed_action_of_a_chain_runs_again(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("a", 1))
        .register(ledger.gives("b", 2))
        .register(ledger.fails_first("c", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("a").next([Action::new("b").next(["c"])]);
    let handle = runtime.start("chain", graph, ()).await.unwrap();
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!(ledger.entries(), ["a", "b", "c", "c"]);
    assert_eq!(record.state, Status::Completed);
    assert!(
        record
            .actions
            .iter()
            .all(|action| action.state == ActionState::Completed)
    );
}

async fn s16_the_result_of_a_slow_sibling_is_kept(place: Place) {
    let ledger = Ledger::new();
    let failed_once = Arc::new(Notify::new());
    let slow = {
        let (ledger, failed_once) = (ledger.clone(), Arc::clone(&failed_once));
        Method::new("slow", move |_| {
            ledger.note("slow");
            let failed_once = Arc::clone(&failed_once);
            async move {
                failed_once.notified().await;
                Ok::<_, ActionError>("kept")
            }
        })
        .options(quick())
    };
    let runtime = place
        .builder()
        .register(slow)
        .register(ledger.fails_first("quick", 2))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::fork("both").next(["slow", "quick"]);
    let handle = runtime.start("siblings", graph, ()).await.unwrap();
    until(&runtime, handle.id(), |record| {
        successes(record, "quick").contains(&Some(true))
    })
    .await;
    failed_once.notify_one();
    let outcome = handle.outcome().await.unwrap();
    assert_eq!(outcome, doc! { "slow": "kept", "quick": "quick" });
    assert_eq!(ledger.count("slow"), 1);
    assert_eq!(ledger.count("quick"), 3);
}

async fn s17_any_value_is_a_failure(place: Place) {
    #[derive(Debug)]
    struct Odd;
    impl std::fmt::Display for Odd {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("odd")
        }
    }
    impl std::error::Error for Odd {}

    let once = Options::idempotent().retry(RetryPolicy::never());
    let methods = [
        Method::new("text", |_| async { Err::<(), _>("a text") }),
        Method::new("string", |_| async { Err::<(), _>("a text".to_owned()) }),
        Method::new("empty", |_| async { Err::<(), _>("") }),
        Method::new("own", |_| async { Err::<(), _>(Odd) }),
        Method::new("boxed", |_| async {
            Err::<(), Box<dyn std::error::Error + Send + Sync>>(Odd.into())
        }),
        Method::new("io", |_| async {
            Err::<(), _>(std::io::Error::other("disk"))
        }),
        Method::new("panic", |_| async {
            assert!(std::env::args().len() > 10_000, "it panicked");
            Ok::<_, ActionError>(())
        }),
        Method::new("panic-without-text", |_| async {
            if std::env::args().len() < 10_000 {
                std::panic::panic_any(7);
            }
            Ok::<_, ActionError>(())
        }),
        Method::new("panic-before-the-first-await", |_| {
            assert!(std::env::args().len() > 10_000, "it panicked at once");
            async { Ok::<_, ActionError>(()) }
        }),
    ];
    let mut builder = place.builder();
    for method in &methods {
        builder = builder.register(method.clone().options(once));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let expected = [
        "a text",
        "a text",
        "",
        "odd",
        "odd",
        "disk",
        "it panicked",
        "a panic with a value that is no text",
        "it panicked at once",
    ];
    for (method, expected) in methods.iter().zip(expected) {
        let handle = runtime.start("fails", method.name(), ()).await.unwrap();
        let error = handle.outcome().await.unwrap_err();
        let OutcomeError::Failed { action, error, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((&*action, &*error.message), (method.name(), expected));
        let record = handle.record().await.unwrap();
        assert_eq!(successes(&record, method.name()), [Some(false)]);
        let panicked = method.name().starts_with("panic");
        assert_eq!(record.report[0].kind == Some(AttemptKind::Panic), panicked);
    }
}

async fn independent_branches_finish_before_it_is_failed(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.fails_for_good("bad"))
        .register(ledger.gives("never", 0))
        .register(ledger.fails_first("good", 1))
        .register(ledger.gives("after", 2))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::fork("both").next([
        Action::new("bad").next(["never"]),
        Action::new("good").next(["after"]),
    ]);
    let handle = runtime.start("branches", graph, ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert_eq!(error.code(), "failed");
    let record = handle.record().await.unwrap();
    assert_eq!(record.state, Status::Failed);
    assert_eq!(action(&record, "never").state, ActionState::Skipped);
    assert_eq!(action(&record, "after").output, Some(Bson::Int32(2)));
    assert_eq!((ledger.count("bad"), ledger.count("never")), (1, 0));
}

async fn a_plain_action_is_not_retried(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.fails_first("plain", 1).options(Options::plain()))
        .register(ledger.fails_first("stubborn", 1).options(
            Options::plain().retry(RetryPolicy::new().max(2).base(Duration::from_millis(10))),
        ))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let plain = runtime.start("plain", "plain", ()).await.unwrap();
    assert_eq!(plain.outcome().await.unwrap_err().code(), "failed");
    assert_eq!(ledger.count("plain"), 1);
    // Where the retry is written, an error of a plain action is retried too.
    let stubborn = runtime.start("plain", "stubborn", ()).await.unwrap();
    stubborn.outcome().await.unwrap();
    assert_eq!(ledger.count("stubborn"), 2);
}

async fn retry_after_is_heeded(place: Place) {
    let calls = Arc::new(AtomicUsize::new(0));
    let busy = {
        let calls = Arc::clone(&calls);
        Method::new("busy", move |_| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                match call {
                    0 => Err(ActionError::retry_after(
                        Duration::from_millis(20),
                        "too busy",
                    )),
                    1 => Err(ActionError::retry_after(
                        Duration::from_hours(1),
                        "far too busy",
                    )),
                    _ => Ok(()),
                }
            }
        })
        .options(Options::idempotent().retry(SLOW.base(Duration::from_mins(1))))
    };
    let runtime = place.builder().register(busy).build().await.unwrap();
    runtime.spawn();
    let handle = runtime.start("busy", "busy", ()).await.unwrap();
    // The first delay is far shorter than the policy's, the second one far longer.
    let record = until(&runtime, handle.id(), |record| {
        successes(record, "busy").len() == 2 && record.state == Status::Waiting
    })
    .await;
    let wait = action(&record, "busy").at.unwrap().timestamp_millis()
        - record.report[0].end_date.timestamp_millis();
    assert_eq!(wait, 3_600_000);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

async fn retries_are_used_up(place: Place) {
    let ledger = Ledger::new();
    let options = quick().retry(RetryPolicy::new().max(3).base(Duration::from_millis(5)));
    let runtime = place
        .builder()
        .register(ledger.fails_first("a", 5).options(options))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("a", "a", ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap_err().code(), "failed");
    let record = handle.record().await.unwrap();
    assert_eq!(successes(&record, "a"), [Some(false); 3]);
    assert_eq!(ledger.count("a"), 3);
}

/// An action that hangs at its first attempt, deaf to everything.
fn hangs_once(ledger: &Ledger, options: Options) -> Method {
    let ledger = ledger.clone();
    Method::new("hangs", move |call: Call| {
        ledger.note("hangs");
        async move {
            if call.context().attempt() == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, ActionError>("woken")
        }
    })
    .options(options.timeout(Duration::from_millis(50)))
}

/// F02: an action that would never return is ended by its timeout, which counts as a failed attempt.
async fn f02_a_timeout_is_a_failed_attempt(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(hangs_once(&ledger, quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("hangs", "hangs", ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap(), doc! { "hangs": "woken" });
    let record = handle.record().await.unwrap();
    assert_eq!(successes(&record, "hangs"), [Some(true), Some(false)]);
    let timed_out = &record.report[1];
    assert_eq!(timed_out.kind, Some(AttemptKind::Timeout));
    assert!(timed_out.end_date > timed_out.begin_date);
    let message = &timed_out.error.as_ref().unwrap().message;
    assert!(message.contains("timeout of 50ms"), "{message}");
}

async fn an_error_may_say_that_nobody_knows(place: Place) {
    let ledger = Ledger::new();
    let unclear = |name: &'static str| {
        let ledger = ledger.clone();
        Method::new(name, move |call: Call| {
            ledger.note(name);
            async move {
                if call.context().attempt() == 1 {
                    let error = ActionError::in_doubt("the connection broke");
                    return Err(anyhow::Error::from(error).context("the charge"));
                }
                Ok(7)
            }
        })
    };
    let runtime = place
        .builder()
        .register(unclear("plain").options(Options::plain()))
        .register(unclear("idempotent").options(quick()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let plain = runtime.start("it", "plain", ()).await.unwrap();
    let record = until(&runtime, plain.id(), |record| {
        record.state == Status::InDoubt
    })
    .await;
    assert_eq!(successes(&record, "plain"), [None]);
    assert_eq!(record.report[0].kind, Some(AttemptKind::Unclear));
    plain.resolve_not_applied("plain").await.unwrap();
    assert_eq!(plain.outcome().await.unwrap(), doc! { "plain": 7 });
    // What may run again simply does.
    let idempotent = runtime.start("it", "idempotent", ()).await.unwrap();
    assert_eq!(
        idempotent.outcome().await.unwrap(),
        doc! { "idempotent": 7 }
    );
    let record = idempotent.record().await.unwrap();
    assert_eq!(successes(&record, "idempotent"), [Some(true), Some(false)]);
}

async fn a_plain_action_that_times_out_is_in_doubt(place: Place) {
    let ledger = Ledger::new();
    let options = Options::plain().retry(RetryPolicy::new().base(Duration::from_millis(5)));
    let runtime = place
        .builder()
        .register(hangs_once(&ledger, options))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("hangs", "hangs", ()).await.unwrap();
    let record = until(&runtime, handle.id(), |record| {
        record.state == Status::InDoubt && record.lease.is_none()
    })
    .await;
    assert_eq!(successes(&record, "hangs"), [None]);
    assert_eq!(record.report[0].kind, Some(AttemptKind::Timeout));
    assert_eq!(record.next, None);
    assert_eq!(ledger.count("hangs"), 1);
}
