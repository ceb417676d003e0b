//! A plain action in doubt: a function says whether it took effect (`verify`), or its own late result does, or an operator.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use bson::Bson;
use milestone_runtime::{
    Method, Status, Verdict,
    action::{ActionError, Options},
    core::{
        machine::check,
        record::{ActionState, AttemptKind, Phase, VerifyState},
    },
    dynamic::Action,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    look::{action, until, until_true},
    on_stores,
    place::Place,
};
use tokio::sync::Notify;

on_stores!(memory, sqlite, mongodb:
    applied_goes_on_without_running_it_again,
    not_applied_runs_it_again,
    a_verify_that_cannot_tell_yet_is_asked_again,
    a_verify_that_fails_for_good_leaves_it_to_an_operator,
    a_timeout_puts_it_in_doubt_and_a_verify_settles_it,
    f06_a_late_result_settles_its_own_doubt,
    a_result_that_comes_after_the_operators_word_changes_nothing,
    a_verify_that_hangs_is_told_off_by_the_operators_word,
    a_verify_that_hangs_does_not_hold_up_an_undo,
    a_shutdown_is_no_failure_and_the_worker_says_that_it_is_gone,
);

const LEASE: Duration = Duration::from_millis(500);
const SETTLE: Duration = Duration::from_millis(300);

/// A charge that hangs in its first attempt, and then gives 7.
fn charge(ledger: &Ledger) -> Method {
    let ledger = ledger.clone();
    Method::new("charge", move |call| {
        ledger.note("charge");
        let first = call.context().attempt() == 1;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok::<_, ActionError>(7)
        }
    })
    .options(Options::plain().verify("was-charged"))
}

/// What `was-charged` says, one after the other; the last one again and again.
fn says(ledger: &Ledger, words: &'static [Result<Verdict<i32>, &'static str>]) -> Method {
    let ledger = ledger.clone();
    Method::new("was-charged", move |call| {
        let asked = ledger.count("was-charged");
        ledger.note("was-charged");
        ledger.note(call.context().idempotency_key());
        let word = words[asked.min(words.len() - 1)];
        async move {
            match word {
                Ok(verdict) => Ok(verdict),
                Err("fatal") => Err(ActionError::fatal("the service has forgotten")),
                Err(why) => Err(ActionError::new(why)),
            }
        }
    })
    .options(quick())
}

/// A worker dies in the middle of the charge; another one takes over.
async fn in_doubt(
    place: &Place,
    ledger: &Ledger,
    words: &'static [Result<Verdict<i32>, &'static str>],
) -> (
    milestone_runtime::Runtime,
    milestone_runtime::Handle<bson::Document>,
) {
    let builder = || {
        place
            .builder()
            .lease(LEASE)
            .settle(SETTLE)
            .register(charge(ledger))
            .register(says(ledger, words))
            .register(ledger.gives("ship", "shipped"))
    };
    let first = builder().build().await.unwrap();
    first.spawn();
    let graph = Action::new("charge").next(["ship"]);
    let id = first.start("Order", graph, ()).await.unwrap().id().clone();
    until_true("the charge hangs", || ledger.count("charge") == 1).await;
    drop(first);
    let second = builder().build().await.unwrap();
    second.spawn();
    let handle = second.handle(id);
    (second, handle)
}

async fn applied_goes_on_without_running_it_again(place: Place) {
    let ledger = Ledger::new();
    let (_worker, order) = in_doubt(&place, &ledger, &[Ok(Verdict::Applied(5))]).await;
    let outcome = order.outcome().await.unwrap();
    assert_eq!(outcome, bson::doc! { "charge": 5, "ship": "shipped" });
    assert_eq!(
        ledger.entries(),
        [
            "charge".to_owned(),
            "was-charged".to_owned(),
            format!("{}/charge", order.id()),
            "ship".to_owned()
        ]
    );
    let record = order.record().await.unwrap();
    assert_eq!(check(&record), []);
    let [_, verified, abandoned] = &record.report[..] else {
        panic!("{:#?}", record.report)
    };
    assert_eq!(
        (verified.phase, verified.success),
        (Phase::Verify, Some(true))
    );
    assert_eq!(abandoned.kind, Some(AttemptKind::Abandoned));
    let settled = abandoned.end_date.timestamp_millis() + 300;
    assert!(
        verified.begin_date.timestamp_millis() >= settled,
        "the old attempt had its time to end"
    );
}

async fn not_applied_runs_it_again(place: Place) {
    let ledger = Ledger::new();
    let (_worker, order) = in_doubt(&place, &ledger, &[Ok(Verdict::NotApplied)]).await;
    assert_eq!(
        order.outcome().await.unwrap(),
        bson::doc! { "charge": 7, "ship": "shipped" }
    );
    assert_eq!(ledger.count("charge"), 2);
}

async fn a_verify_that_cannot_tell_yet_is_asked_again(place: Place) {
    let ledger = Ledger::new();
    let words = &[Err("not yet"), Err("not yet"), Ok(Verdict::Applied(1))];
    let (_worker, order) = in_doubt(&place, &ledger, words).await;
    assert_eq!(order.outcome().await.unwrap().get_i32("charge").unwrap(), 1);
    assert_eq!(
        (ledger.count("charge"), ledger.count("was-charged")),
        (1, 3)
    );
}

async fn a_verify_that_fails_for_good_leaves_it_to_an_operator(place: Place) {
    let ledger = Ledger::new();
    let (worker, order) = in_doubt(&place, &ledger, &[Err("fatal")]).await;
    let failed = |record: &milestone_runtime::MilestoneRecord| {
        let verify = action(record, "charge").verify.as_ref();
        verify.is_some_and(|verify| verify.state == VerifyState::Failed)
    };
    let record = until(&worker, order.id(), failed).await;
    assert_eq!(record.state, Status::InDoubt);
    let error = record.report[0].error.as_ref().unwrap();
    assert_eq!(error.message, "the service has forgotten");
    order.resolve_applied("charge", &9).await.unwrap();
    assert_eq!(order.outcome().await.unwrap().get_i32("charge").unwrap(), 9);
    assert_eq!(ledger.count("charge"), 1);
}

async fn a_timeout_puts_it_in_doubt_and_a_verify_settles_it(place: Place) {
    let ledger = Ledger::new();
    let options = Options::plain()
        .verify("was-charged")
        .timeout(Duration::from_millis(50));
    let worker = place
        .builder()
        .settle(SETTLE)
        .register(charge(&ledger).options(options))
        .register(says(&ledger, &[Ok(Verdict::NotApplied)]))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let began = Instant::now();
    let order = worker.start("Order", "charge", ()).await.unwrap();
    assert_eq!(order.outcome().await.unwrap(), bson::doc! { "charge": 7 });
    assert!(began.elapsed() >= SETTLE);
    assert_eq!(ledger.count("charge"), 2);
}

/// A charge that blocks its thread, deaf to everything, until it is let go, and then succeeds.
fn blocks(ledger: &Ledger) -> (Method, mpsc::Sender<()>) {
    let ledger = ledger.clone();
    let (let_go, blocked) = mpsc::channel();
    let blocked = Arc::new(Mutex::new(blocked));
    let method = Method::new("charge", move |_| {
        let (ledger, blocked) = (ledger.clone(), Arc::clone(&blocked));
        async move {
            ledger.note("charge");
            blocked.lock().unwrap().recv().unwrap();
            ledger.note("charged");
            Ok::<_, ActionError>("receipt")
        }
    });
    let options = Options::plain().timeout(Duration::from_millis(100));
    (method.options(options), let_go)
}

/// F06: the attempt ends after it was given up; nobody has settled its doubt, so its own word does.
async fn f06_a_late_result_settles_its_own_doubt(place: Place) {
    let ledger = Ledger::new();
    let (charge, let_go) = blocks(&ledger);
    let worker = place
        .builder()
        .register(charge)
        .register(ledger.gives("ship", "shipped"))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let graph = Action::new("charge").next(["ship"]);
    let order = worker.start("Order", graph, ()).await.unwrap();
    let record = until(&worker, order.id(), |record| {
        record.state == Status::InDoubt
    })
    .await;
    assert_eq!(record.report[0].kind, Some(AttemptKind::Timeout));
    assert_eq!(ledger.count("charged"), 0);
    let_go.send(()).unwrap();
    let outcome = order.outcome().await.unwrap();
    assert_eq!(
        outcome,
        bson::doc! { "charge": "receipt", "ship": "shipped" }
    );
    let record = order.record().await.unwrap();
    assert_eq!(check(&record), []);
    let answer = &record.answers[0];
    assert_eq!(
        (&*answer.order, &*answer.by, answer.done),
        ("resolve", worker.worker(), true)
    );
    assert_eq!(ledger.count("charge"), 1);
}

async fn a_result_that_comes_after_the_operators_word_changes_nothing(place: Place) {
    let ledger = Ledger::new();
    let (charge, let_go) = blocks(&ledger);
    let shipped = Arc::new(Notify::new());
    let ship = Method::new("ship", {
        let shipped = Arc::clone(&shipped);
        move |_| {
            let shipped = Arc::clone(&shipped);
            async move {
                shipped.notified().await;
                Ok::<_, ActionError>(())
            }
        }
    });
    let worker = place
        .builder()
        .register(charge)
        .register(ship)
        .build()
        .await
        .unwrap();
    worker.spawn();
    let graph = Action::new("charge").next(["ship"]);
    let order = worker.start("Order", graph, ()).await.unwrap();
    until(&worker, order.id(), |record| {
        record.state == Status::InDoubt
    })
    .await;
    order.resolve_applied("charge", &"by hand").await.unwrap();
    let_go.send(()).unwrap();
    until_true("the old attempt ends", || ledger.count("charged") == 1).await;
    // It ships for as long as the late result is under way.
    let is_late = |record: &milestone_runtime::MilestoneRecord| {
        let mut answers = record.answers.iter();
        answers.any(|answer| answer.by == worker.worker())
    };
    until(&worker, order.id(), is_late).await;
    shipped.notify_one();
    let outcome = order.outcome().await.unwrap();
    assert_eq!(outcome.get_str("charge").unwrap(), "by hand");
    let record = order.record().await.unwrap();
    let late = record
        .answers
        .iter()
        .find(|answer| answer.by == worker.worker());
    let late = late.expect("the late result was answered");
    assert!(
        !late.done && late.message.starts_with("too late"),
        "{late:?}"
    );
    assert_eq!(action(&record, "charge").state, ActionState::Completed);
    assert_ne!(action(&record, "charge").output, Some(Bson::Null));
}

/// A worker with one place, whose charge is in doubt at once and whose verify hangs.
async fn verify_hangs(
    place: &Place,
    ledger: &Ledger,
    undo: bool,
) -> (
    milestone_runtime::Runtime,
    milestone_runtime::Handle<bson::Document>,
) {
    let noted = ledger.clone();
    let verify = Method::new("was-charged", move |_| {
        noted.note("was-charged");
        std::future::pending::<Result<Verdict<i32>, ActionError>>()
    });
    let unclear = Method::new("charge", |_| async {
        Err::<i32, _>(ActionError::in_doubt("it broke"))
    });
    let options = Options::plain().verify("was-charged");
    let options = if undo {
        options.undo("refund")
    } else {
        options
    };
    let worker = place
        .builder()
        .concurrency(1)
        .settle(Duration::from_millis(10))
        .grace(Duration::from_millis(200))
        .register(unclear.options(options))
        .register(verify.options(quick()))
        .register(ledger.gives("refund", 1))
        .register(ledger.gives("ship", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let graph = Action::new("charge").next(["ship"]);
    let order = worker.start("Order", graph, ()).await.unwrap();
    until_true("the verify hangs", || ledger.count("was-charged") == 1).await;
    (worker, order)
}

async fn a_verify_that_hangs_is_told_off_by_the_operators_word(place: Place) {
    let ledger = Ledger::new();
    let (_worker, order) = verify_hangs(&place, &ledger, false).await;
    order.resolve_applied("charge", &3).await.unwrap();
    // The one place that there is gets free.
    order.outcome().await.unwrap();
    assert_eq!(ledger.entries(), ["was-charged", "ship"]);
}

async fn a_verify_that_hangs_does_not_hold_up_an_undo(place: Place) {
    let ledger = Ledger::new();
    let (_worker, order) = verify_hangs(&place, &ledger, true).await;
    order.cancel("enough").await.unwrap();
    assert_eq!(order.outcome().await.unwrap_err().code(), "cancelled");
    assert_eq!(ledger.entries(), ["was-charged", "refund"]);
}

async fn a_shutdown_is_no_failure_and_the_worker_says_that_it_is_gone(place: Place) {
    let ledger = Ledger::new();
    let builder = || {
        place
            .builder()
            .lease(LEASE)
            .settle(Duration::from_millis(10))
            .register(charge(&ledger))
            .register(says(&ledger, &[Ok(Verdict::NotApplied)]))
    };
    let first = builder().build().await.unwrap();
    first.spawn();
    let id = first
        .start("Order", "charge", ())
        .await
        .unwrap()
        .id()
        .clone();
    until_true("the charge hangs", || ledger.count("charge") == 1).await;
    first.shutdown_within(Duration::ZERO).await;
    let record = first.get(id.clone()).await.unwrap().unwrap();
    assert_eq!(record.report[0].kind, Some(AttemptKind::Cancelled));
    assert_eq!(action(&record, "charge").failures, 0);
    let name = first.worker().to_owned();
    let listed = first.workers().await.unwrap();
    assert!(listed.iter().all(|worker| worker.id != name), "{listed:?}");
    let second = builder().build().await.unwrap();
    second.spawn();
    assert_eq!(
        second.handle(id).outcome().await.unwrap(),
        bson::doc! { "charge": 7 }
    );
}
