//! Starting: what is refused, what attaches to the first, and what is known when something fails.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{collections::BTreeMap, time::Duration};

use bson::{Bson, bson, doc};
use milestone_runtime::{
    Conflict, Method, StartError,
    action::{ActionError, Call},
    core::record::{ActionKind, ActionState, Status},
    dynamic::Action,
    prelude::*,
    store::Filter,
};
use milestone_tests::{
    ledger::Ledger,
    look::{action, successes, until, until_true},
    on_stores,
    place::Place,
};

on_stores!(memory, sqlite, mongodb:
    s01_a_milestone_as_it_is_stored,
    s03_a_fork_at_any_depth_records_no_attempt,
    s03_an_empty_fork_is_refused,
    s04_names_that_cannot_be_used_are_refused,
    s05_trees_up_to_the_limit,
    s18_without_the_method_it_waits_and_says_for_what,
    s18_a_worker_without_the_method_leaves_it_alone,
    s27_stored_and_failed,
    f15_twenty_tasks_start_one_id,
    f15_an_id_is_taken_by_another_milestone,
    many_are_started_in_one_call,
    values_that_bson_cannot_hold,
    parameters_over_the_limit,
    outputs_over_the_limit,
    outputs_that_bson_cannot_hold,
);

async fn s01_a_milestone_as_it_is_stored(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    let graph = Action::new("op-1").method("operate").next(["op-2.1"]);
    let handle = runtime
        .start("ops", graph, 7)
        .label("of", "me")
        .await
        .unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!((&*record.kind, record.state), ("ops", Status::Pending));
    assert_eq!(record.parameters, Bson::Int32(7));
    let first = action(&record, "op-1");
    assert_eq!(first.method.as_deref(), Some("operate"));
    assert_eq!((first.state, first.attempts), (ActionState::Ready, 0));
    assert!(first.after.is_empty());
    let second = action(&record, "op-2.1");
    assert_eq!(second.method.as_deref(), Some("op-2.1"));
    assert_eq!(
        (second.state, &*second.after),
        (ActionState::Pending, &[0][..])
    );
    assert!(record.report.is_empty() && record.end_date.is_none());
    assert_eq!(handle.status().await.unwrap(), Status::Pending);
    let mine = Filter::new()
        .kind("ops")
        .state(Status::Pending)
        .label("of", "me");
    assert_eq!(runtime.count(mine.clone()).await.unwrap(), 1);
    let listed = runtime
        .list(mine, milestone_runtime::store::Page::default())
        .await
        .unwrap();
    assert_eq!(listed.records, [record]);
}

async fn s03_a_fork_at_any_depth_records_no_attempt(place: Place) {
    let ledger = Ledger::new();
    let mut builder = place.builder();
    for name in ["a", "b", "c", "d"] {
        builder = builder.register(ledger.gives(name, name));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let inner = Action::fork("inner").next(["b", "c"]).done("d");
    let graph = Action::fork("outer").next([Action::new("a").next([inner])]);
    let handle = runtime.start("forks", graph, ()).await.unwrap();
    let expected = doc! { "a": "a", "b": "b", "c": "c", "d": "d" };
    assert_eq!(handle.outcome().await.unwrap(), expected);
    let record = handle.record().await.unwrap();
    assert_eq!(record.report.len(), 4);
    for name in ["outer", "inner"] {
        let fork = action(&record, name);
        assert_eq!(
            (fork.kind, fork.state),
            (ActionKind::Fork, ActionState::Completed)
        );
        assert_eq!(fork.attempts, 0);
    }
    let entries = ledger.entries();
    assert_eq!((&*entries[0], &*entries[3]), ("a", "d"));
}

async fn s03_an_empty_fork_is_refused(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    let graph = Action::new("a").next([Action::fork("lonely")]);
    let error = runtime.start("forks", graph, ()).await.unwrap_err();
    assert!(matches!(error, StartError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("`lonely`"), "{error}");
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 0);
}

async fn s04_names_that_cannot_be_used_are_refused(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    let cases = [
        ("", Action::new("a")),
        ("ok", Action::new("")),
        ("ok", Action::new("milestone")),
        ("ok", Action::new("$a")),
        ("ok", Action::new("a").next(["b", "b"])),
    ];
    for (kind, graph) in cases {
        let error = runtime.start(kind, graph, ()).await.unwrap_err();
        assert!(matches!(error, StartError::Invalid(_)), "{error}");
        assert!(error.to_string().len() > 10, "{error}");
    }
    let error = runtime.start("ok", "a", ()).id("").await.unwrap_err();
    assert!(
        error.to_string().contains("at least one character"),
        "{error}"
    );
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 0);
}

fn chain(length: usize) -> Action {
    let mut graph = Action::new(format!("a{length}"));
    for at in (1..length).rev() {
        graph = Action::new(format!("a{at}")).method("step").next([graph]);
    }
    graph
}

async fn s05_trees_up_to_the_limit(place: Place) {
    let most = milestone_runtime::core::graph::MAX_ACTIONS;
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("step", 1))
        .register(ledger.gives("a100", "the end"))
        .build()
        .await
        .unwrap();
    let error = runtime
        .start("chain", chain(most + 1), ())
        .await
        .unwrap_err();
    assert!(error.to_string().contains(&most.to_string()), "{error}");
    let deepest = runtime.start("chain", chain(most), ()).await.unwrap();
    assert_eq!(deepest.record().await.unwrap().actions.len(), most);
    assert!(runtime.remove(deepest.id().clone()).await.unwrap());

    runtime.spawn();
    let handle = runtime.start("chain", chain(100), ()).await.unwrap();
    let outcome = handle.outcome().await.unwrap();
    assert_eq!(outcome.get_str("a100").unwrap(), "the end");
    assert_eq!(ledger.count("step"), 99);
}

async fn s18_without_the_method_it_waits_and_says_for_what(place: Place) {
    let ledger = Ledger::new();
    let runtime = place.builder().build().await.unwrap();
    runtime.spawn();
    let handle = runtime.start("known-later", "credit", ()).await.unwrap();
    let report = runtime.run_once().await.unwrap();
    assert_eq!(report.found, 0);
    let record = handle.record().await.unwrap();
    assert_eq!((record.state, record.report.len()), (Status::Pending, 0));
    assert_eq!(action(&record, "credit").state, ActionState::Ready);
    let methods: Vec<_> = record.due.iter().map(|due| due.method.as_str()).collect();
    assert_eq!(methods, ["credit"]);

    runtime.register(ledger.gives("credit", 1)).unwrap();
    handle.outcome().await.unwrap();
    assert_eq!(
        successes(&handle.record().await.unwrap(), "credit"),
        [Some(true)]
    );
}

async fn s18_a_worker_without_the_method_leaves_it_alone(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("debit", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("debit").next(["credit"]);
    let handle = runtime.start("transfer", graph, ()).await.unwrap();
    let record = until(&runtime, handle.id(), |record| {
        record.action("debit").unwrap().1.state == ActionState::Completed && record.lease.is_none()
    })
    .await;
    assert_eq!(record.due.len(), 1);
    assert_eq!(record.due[0].method, "credit");
    assert_eq!(
        record.report.len(),
        1,
        "a worker without a method records no failure"
    );
    let epoch = record.epoch;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let record = handle.record().await.unwrap();
    assert_eq!(
        record.epoch, epoch,
        "a worker that cannot move it on does not take it"
    );
}

async fn s27_stored_and_failed(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.fails_for_good("debit"))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    // Starting succeeds, since it is stored; waiting fails, since its action did.
    let handle = runtime.start("transfer", "debit", ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert_eq!(error.code(), "failed");
    assert!(
        error.to_string().contains("`debit`: debit cannot work"),
        "{error}"
    );
    assert_eq!(handle.status().await.unwrap(), Status::Failed);
}

async fn f15_twenty_tasks_start_one_id(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("debit", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let start = || {
        runtime.start(
            "transfer",
            "debit",
            doc! { "a": 1, "b": { "c": 2, "d": 3 } },
        )
    };
    let tasks: Vec<_> = (0..20)
        .map(|_| tokio::spawn(start().id("t-1").into_future()))
        .collect();
    for task in tasks {
        let handle = task.await.unwrap().unwrap();
        assert_eq!(handle.outcome().await.unwrap(), doc! { "debit": 1 });
    }
    assert_eq!(ledger.count("debit"), 1);
    // After its end too, and whatever the order of the keys.
    let shuffled = doc! { "b": { "d": 3, "c": 2 }, "a": 1 };
    let again = runtime
        .start("transfer", "debit", shuffled)
        .id("t-1")
        .await
        .unwrap();
    assert_eq!(again.status().await.unwrap(), Status::Completed);
    assert_eq!(ledger.count("debit"), 1);
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 1);
}

async fn f15_an_id_is_taken_by_another_milestone(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    runtime
        .start("transfer", "debit", [1, 2])
        .id("t-1")
        .await
        .unwrap();
    let error = runtime
        .start("transfer", "debit", [2, 1])
        .id("t-1")
        .await
        .unwrap_err();
    let StartError::Conflict { id, conflict } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (id.to_string(), conflict),
        ("t-1".to_owned(), &Conflict::Parameters)
    );
    let error = runtime
        .start("refund", "debit", [1, 2])
        .id("t-1")
        .await
        .unwrap_err();
    assert_eq!(error.code(), "conflict");
    assert!(
        error
            .to_string()
            .contains("the type `transfer`, not `refund`"),
        "{error}"
    );
}

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(double)]
struct Number(i64);

#[action(idempotent)]
async fn double(Params(Number(n)): Params<Number>) -> Result<i64, ActionError> {
    Ok(2 * n)
}

async fn many_are_started_in_one_call(place: Place) {
    let runtime = place.builder().actions(["double"]).build().await.unwrap();
    runtime.spawn();
    let started = runtime.start_many((0..300).map(Number)).await;
    assert_eq!(started.len(), 300);
    for (n, handle) in (0..).zip(started) {
        assert_eq!(handle.unwrap().outcome().await.unwrap(), 2 * n);
    }
    let completed = Filter::new().kind("Number").state(Status::Completed);
    assert_eq!(runtime.count(completed).await.unwrap(), 300);
}

#[derive(Serialize)]
struct Unsigned {
    balance: u64,
}

async fn values_that_bson_cannot_hold(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    let errors = [
        runtime
            .start("t", "a", Unsigned { balance: u64::MAX })
            .await
            .unwrap_err(),
        runtime.start("t", "a", i128::MAX).await.unwrap_err(),
        runtime
            .start("t", "a", BTreeMap::from([(vec![1], 2)]))
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "parameters", "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("BSON cannot hold the parameters of type `"),
            "{text}"
        );
    }
    // What fits is not changed.
    let fits = runtime
        .start(
            "t",
            "a",
            Unsigned {
                balance: i64::MAX as u64,
            },
        )
        .await
        .unwrap();
    assert_eq!(
        fits.record().await.unwrap().parameters,
        bson!({ "balance": i64::MAX })
    );
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 1);
}

async fn parameters_over_the_limit(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    let error = runtime
        .start("big", "a", "x".repeat(5 << 20))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "limit_size");
    let text = error.to_string();
    for part in ["`big`", "5242885 bytes", "`parameters` is 4194304"] {
        assert!(text.contains(part), "{text}");
    }
    let mut deep = Bson::Null;
    for _ in 0..100 {
        deep = Bson::Array(vec![deep]);
    }
    let error = runtime.start("deep", "a", deep).await.unwrap_err();
    assert_eq!(error.code(), "limit_depth");
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 0);
}

/// Starts an action whose output cannot be stored, and sees that it has failed for good and is not run again.
async fn refused(place: &Place, method: Method, runs: impl Fn() -> usize) -> String {
    let runtime = place
        .builder()
        .register(method.clone())
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("refused", method.name(), ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert_eq!(error.code(), "failed");
    let record = handle.record().await.unwrap();
    assert_eq!(record.report.len(), 1);
    let kind = record.report[0].kind;
    assert_eq!(
        kind,
        Some(milestone_runtime::core::record::AttemptKind::Refused)
    );
    assert_eq!(action(&record, method.name()).output, None);
    until_true("the action has run", || runs() > 0).await;
    assert_eq!(runs(), 1);
    record.report[0].error.as_ref().unwrap().message.clone()
}

async fn outputs_over_the_limit(place: Place) {
    let ledger = Ledger::new();
    let method = ledger.gives("big", "x".repeat(2 << 20));
    let message = refused(&place, method, || ledger.count("big")).await;
    for part in [
        "took effect",
        "`big`",
        "2097157 bytes",
        "`output` is 1048576",
        "not run again",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

async fn outputs_that_bson_cannot_hold(place: Place) {
    let ledger = Ledger::new();
    let noted = ledger.clone();
    let method = Method::new("unsigned", move |_: Call| {
        noted.note("unsigned");
        async { Ok::<_, ActionError>(u64::MAX) }
    })
    .options(milestone_tests::ledger::quick());
    let message = refused(&place, method, || ledger.count("unsigned")).await;
    for part in ["took effect", "`u64`"] {
        assert!(message.contains(part), "{message}");
    }
}
