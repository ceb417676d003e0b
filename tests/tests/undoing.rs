//! What was done is undone after a failure for good or a cancel, and each end is told by a typed error.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::time::Duration;

use bson::DateTime;
use milestone_runtime::{
    Method, OutcomeError,
    action::{ActionError, Call, Options},
    core::record::{ActionState, Command, Order, Phase, Status, UndoState},
    dynamic::Action,
    store::Sent,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    look::{action, until, until_true},
    on_stores,
    place::Place,
};

on_stores!(memory, sqlite, mongodb:
    s28_two_inserts_are_undone_and_an_undo_is_retried,
    undone_in_reverse_order,
    what_an_undo_gives_need_not_be_storable,
    outcome_of_a_failed_milestone,
    outcome_of_a_cancelled_milestone,
    outcome_of_a_removed_milestone,
);

/// An insert that can be taken back, and its undo.
fn insert(
    ledger: &Ledger,
    name: &'static str,
    undo: &'static str,
    undo_fails: usize,
) -> [Method; 2] {
    [
        ledger
            .gives(name, format!("id of {name}"))
            .options(quick().undo(undo)),
        ledger.fails_first(undo, undo_fails),
    ]
}

async fn s28_two_inserts_are_undone_and_an_undo_is_retried(place: Place) {
    let ledger = Ledger::new();
    let mut builder = place.builder();
    let both = [
        insert(&ledger, "one", "remove-one", 0),
        insert(&ledger, "two", "remove-two", 2),
    ];
    for method in both.into_iter().flatten() {
        builder = builder.register(method);
    }
    let noted = ledger.clone();
    // It fails only after the others have succeeded.
    let three = Method::new("three", move |_| {
        let noted = noted.clone();
        async move {
            until_true("the others are done", || {
                noted.count("one") > 0 && noted.count("two") > 0
            })
            .await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err::<(), _>(ActionError::fatal("the third one cannot be"))
        }
    })
    .options(quick());
    let runtime = builder.register(three).build().await.unwrap();
    runtime.spawn();
    let graph = Action::fork("inserts").next(["one", "two", "three"]);
    let handle = runtime.start("inserts", graph, ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    let OutcomeError::Undone {
        action: failed,
        error,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (&*failed, &*error.message),
        ("three", "the third one cannot be")
    );
    let record = handle.record().await.unwrap();
    assert_eq!(record.state, Status::Undone);
    for name in ["one", "two"] {
        let undo = action(&record, name).undo.as_ref().unwrap();
        assert_eq!(undo.state, UndoState::Done);
    }
    let undone = record
        .report
        .iter()
        .filter(|attempt| attempt.phase == Phase::Undo);
    assert_eq!(undone.count(), 4);
    assert_eq!(
        (ledger.count("remove-one"), ledger.count("remove-two")),
        (1, 3)
    );
}

async fn undone_in_reverse_order(place: Place) {
    let ledger = Ledger::new();
    let undo = |name: &'static str, of: &'static str| {
        let ledger = ledger.clone();
        Method::new(name, move |call: Call| {
            ledger.note(format!(
                "{name}: {:?}",
                call.output(of).and_then(|output| output.as_str())
            ));
            async { Ok::<_, ActionError>(()) }
        })
        .options(quick())
    };
    let runtime = place
        .builder()
        .register(ledger.gives("a", "A").options(quick().undo("undo-a")))
        .register(ledger.gives("b", "B").options(quick().undo("undo-b")))
        .register(ledger.fails_for_good("c").options(quick().undo("undo-c")))
        .register(ledger.gives("d", "D"))
        .register(undo("undo-a", "a"))
        .register(undo("undo-b", "b"))
        .register(undo("undo-c", "c"))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let c = Action::new("c").next(["d"]);
    let graph = Action::new("a").next([Action::new("b").next([c])]);
    let handle = runtime.start("chain", graph, ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap_err().code(), "undone");
    // A failed action is undone as well, since an error may follow the effect; it has no output.
    let expected = [
        "a",
        "b",
        "c",
        "undo-c: None",
        "undo-b: Some(\"B\")",
        "undo-a: Some(\"A\")",
    ];
    assert_eq!(ledger.entries(), expected);
    let record = handle.record().await.unwrap();
    assert_eq!(action(&record, "d").state, ActionState::Skipped);
}

/// F34: an output that BSON cannot hold fails an action for good, since it would be lost; that of an undo is not kept.
async fn what_an_undo_gives_need_not_be_storable(place: Place) {
    let ledger = Ledger::new();
    let undo = Method::new("unbook", |_| async { Ok::<_, ActionError>(u64::MAX) });
    let runtime = place
        .builder()
        .register(ledger.gives("book", 1).options(quick().undo("unbook")))
        .register(undo.options(quick()))
        .register(ledger.fails_for_good("pay"))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("book").next(["pay"]);
    let handle = runtime.start("trip", graph, ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap_err().code(), "undone");
    let record = handle.record().await.unwrap();
    assert_eq!(
        action(&record, "book").undo.as_ref().unwrap().state,
        UndoState::Done
    );
}

async fn outcome_of_a_failed_milestone(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.fails_for_good("a"))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("a", "a", ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    let OutcomeError::Failed { id, action, error } = &error else {
        panic!("{error}");
    };
    assert_eq!((id, &**action), (handle.id(), "a"));
    assert_eq!(error.message, "a cannot work");
}

async fn outcome_of_a_cancelled_milestone(place: Place) {
    let ledger = Ledger::new();
    let noted = ledger.clone();
    let slow = Method::new("slow", move |call: Call| {
        noted.note("slow");
        async move {
            call.context().cancelled().await;
            Ok::<_, ActionError>(())
        }
    })
    .options(Options::idempotent().undo("undo-slow"));
    let runtime = place
        .builder()
        .lease(Duration::from_millis(500))
        .register(slow)
        .register(ledger.gives("undo-slow", 1))
        .register(ledger.gives("next", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("slow").next(["next"]);
    let handle = runtime.start("slow", graph, ()).await.unwrap();
    until(&runtime, handle.id(), |record| {
        record.state == Status::Running
    })
    .await;
    until_true("it runs", || ledger.count("slow") > 0).await;
    let command = Command {
        id: "c1".to_owned(),
        order: Order::Cancel {
            reason: "no longer wanted".to_owned(),
        },
        by: "me".to_owned(),
        at: DateTime::now(),
    };
    let store = place.store().await;
    let sent = store.send(handle.id().clone(), command).await.unwrap();
    assert_eq!(sent, Sent::Delivered);
    let error = handle.outcome().await.unwrap_err();
    assert!(matches!(error, OutcomeError::Cancelled { .. }), "{error}");
    assert_eq!(ledger.entries(), ["slow", "undo-slow"]);
}

async fn outcome_of_a_removed_milestone(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    let handle = runtime.start("a", "a", ()).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.outcome().await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    assert!(runtime.remove(handle.id().clone()).await.unwrap());
    assert!(!runtime.remove(handle.id().clone()).await.unwrap());
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, OutcomeError::Removed { .. }), "{error}");
    assert_eq!(handle.status().await.unwrap_err().code(), "removed");
}
