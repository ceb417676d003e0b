//! The robot: passes and what they report, several workers, failing queries, hung functions, registering at run time.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bson::{Bson, doc};
use milestone_runtime::{
    Method, Runtime,
    action::{ActionError, Options},
    core::record::Status,
    dynamic::Action,
    store::Filter,
};
use milestone_tests::{
    flaky::Flaky,
    ledger::{Ledger, quick},
    look::{successes, until, until_true},
    on_stores,
    place::Place,
};
use tokio::sync::Notify;

on_stores!(memory, sqlite, mongodb:
    s20_a_pass_in_which_all_succeed,
    s20_a_pass_in_which_all_fail,
    s20_a_pass_in_which_three_fail,
    s20_a_pass_over_nothing,
    s20_passes_at_once,
    s21_two_robots_run_each_action_once,
    s21_starting_and_running_in_one_process,
    s22_a_failed_query_stops_nothing,
    s22_lost_replies_do_nothing_twice,
    s22_the_robot_can_be_stopped_and_started_again,
    s22_a_hung_function_does_not_block_others,
    s24_register_replace_and_unregister,
    s24_register_all_or_nothing,
    s24_unregistered_while_it_waits,
    s24_registered_while_a_sibling_runs,
    concurrency_of_an_action,
);

async fn start_five(runtime: &Runtime, fails: &[usize]) {
    for n in 0..5_usize {
        let action = if fails.contains(&n) { "bad" } else { "good" };
        let parameters = doc! { "n": i32::try_from(n).unwrap() };
        let id = format!("m{n}");
        runtime
            .start(action, action, parameters)
            .id(id)
            .await
            .unwrap();
    }
}

async fn passing(place: &Place) -> (Ledger, Runtime) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("good", 7))
        .register(ledger.fails_first("bad", 1000))
        .build()
        .await
        .unwrap();
    (ledger, runtime)
}

async fn s20_a_pass_in_which_all_succeed(place: Place) {
    let (ledger, runtime) = passing(&place).await;
    start_five(&runtime, &[]).await;
    let report = runtime.run_once().await.unwrap();
    assert_eq!((report.found, report.resolved, report.rejected), (5, 5, 0));
    assert_eq!(ledger.count("good"), 5);
    assert_eq!(report.items.len(), 5);
    for item in &report.items {
        let n: i32 = item.id.to_string()[1..].parse().unwrap();
        assert_eq!(item.kind, "good");
        assert_eq!(item.parameters, Bson::from(doc! { "n": n }));
        assert_eq!(
            (item.state, &item.output),
            (Status::Completed, &doc! { "good": 7 })
        );
        assert_eq!(item.error, None);
        assert!(item.elapsed > Duration::ZERO && item.elapsed <= report.elapsed);
    }
    let again = runtime.run_once().await.unwrap();
    assert_eq!(again.found, 0);
}

async fn s20_a_pass_in_which_all_fail(place: Place) {
    let (ledger, runtime) = passing(&place).await;
    start_five(&runtime, &[0, 1, 2, 3, 4]).await;
    let report = runtime.run_once().await.unwrap();
    assert_eq!((report.found, report.resolved, report.rejected), (5, 0, 5));
    assert_eq!(
        ledger.count("bad"),
        5,
        "what fails is not tried again in the same pass"
    );
    for item in &report.items {
        assert_eq!(item.state, Status::Waiting);
        assert_eq!(
            item.error.as_ref().unwrap().message,
            "bad does not work yet"
        );
        assert!(item.output.is_empty());
    }
}

async fn s20_a_pass_in_which_three_fail(place: Place) {
    let (_, runtime) = passing(&place).await;
    start_five(&runtime, &[0, 2, 4]).await;
    let report = runtime.run_once().await.unwrap();
    assert_eq!((report.found, report.resolved, report.rejected), (5, 2, 3));
    let failed = report.items.iter().filter(|item| item.error.is_some());
    assert!(failed.clone().all(|item| item.kind == "bad"));
    assert_eq!(failed.count(), 3);
}

async fn s20_a_pass_over_nothing(place: Place) {
    let (_, runtime) = passing(&place).await;
    let report = runtime.run_once().await.unwrap();
    assert_eq!((report.found, report.resolved, report.rejected), (0, 0, 0));
    assert!(report.items.is_empty());
    // The methods of a client run nothing.
    let client = place.builder().client().build().await.unwrap();
    start_five(&client, &[]).await;
    assert_eq!(client.run_once().await.unwrap().found, 0);
    assert_eq!(
        client
            .count(Filter::new().state(Status::Pending))
            .await
            .unwrap(),
        5
    );
}

async fn s20_passes_at_once(place: Place) {
    let (ledger, runtime) = passing(&place).await;
    start_five(&runtime, &[]).await;
    let (one, two, three) =
        tokio::join!(runtime.run_once(), runtime.run_once(), runtime.run_once());
    let found: usize = [one, two, three]
        .into_iter()
        .map(|report| report.unwrap().found)
        .sum();
    assert_eq!(found, 5);
    assert_eq!(ledger.count("good"), 5);
}

fn three() -> Action {
    Action::new("a").next([Action::new("b").next(["c"])])
}

async fn s21_two_robots_run_each_action_once(place: Place) {
    let ledger = Ledger::new();
    let mut robots = Vec::new();
    for _ in 0..2 {
        let mut builder = place.builder().concurrency(2);
        for name in ["a", "b", "c"] {
            let ledger = ledger.clone();
            let slow = Method::new(name, move |call| {
                let ledger = ledger.clone();
                let worker = call.context().worker().to_owned();
                ledger.note(&*worker);
                async move {
                    // However slow the other one is, there is work for it.
                    let both = || ledger.entries().iter().any(|entry| *entry != worker);
                    until_true("both robots work", both).await;
                    Ok::<_, ActionError>(())
                }
            });
            builder = builder.register(slow.options(quick()));
        }
        robots.push(builder.build().await.unwrap());
    }
    let client = place.builder().client().build().await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..10 {
        handles.push(client.start("three", three(), ()).await.unwrap());
    }
    for robot in &robots {
        robot.spawn();
    }
    for handle in &handles {
        handle.outcome().await.unwrap();
        assert_eq!(handle.record().await.unwrap().report.len(), 3);
    }
    assert_eq!(ledger.entries().len(), 30);
    for robot in &robots {
        assert!(
            ledger.count(robot.worker()) > 0,
            "one robot did all: {:?}",
            ledger.entries()
        );
    }
}

async fn s21_starting_and_running_in_one_process(place: Place) {
    let ledger = Ledger::new();
    let mut builder = place.builder();
    for name in ["a", "b", "c"] {
        builder = builder.register(ledger.gives(name, name));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    runtime.spawn();
    let starts: Vec<_> = (0..10)
        .map(|_| tokio::spawn(runtime.start("three", three(), ()).into_future()))
        .collect();
    for _ in 0..3 {
        runtime.run_once().await.unwrap();
    }
    for start in starts {
        start.await.unwrap().unwrap().outcome().await.unwrap();
    }
    assert_eq!(ledger.entries().len(), 30);
}

async fn s22_a_failed_query_stops_nothing(place: Place) {
    let ledger = Ledger::new();
    let store = Flaky::new(place.store().await);
    let mut builder = place.builder().store(Arc::clone(&store) as _);
    for name in ["a", "b", "c"] {
        builder = builder.register(ledger.gives(name, name));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    runtime
        .start("three", three(), ())
        .await
        .unwrap()
        .outcome()
        .await
        .unwrap();

    store.away(true);
    let calls = store.calls();
    until_true("some calls fail", || store.calls() > calls + 3).await;
    // Nothing is lost: the start waits for the database as well.
    let start = tokio::spawn(runtime.start("three", three(), ()).into_future());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!start.is_finished());
    store.away(false);
    start.await.unwrap().unwrap().outcome().await.unwrap();
    assert_eq!(ledger.entries(), ["a", "b", "c", "a", "b", "c"]);
}

/// F18: writes are completed and their replies lost, so that they are repeated: they converge, and plain actions run once.
async fn s22_lost_replies_do_nothing_twice(place: Place) {
    let ledger = Ledger::new();
    let store = Flaky::new(place.store().await);
    let mut builder = place.builder().store(Arc::clone(&store) as _);
    for name in ["a", "b", "c"] {
        builder = builder.register(ledger.gives(name, name).options(Options::plain()));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    store.lose_one_in(3);
    for n in 0..10 {
        let handle = runtime
            .start("three", three(), ())
            .id(format!("m{n}"))
            .await
            .unwrap();
        handle.outcome().await.unwrap();
    }
    store.lose_one_in(0);
    assert_eq!(ledger.entries().len(), 30);
    assert_eq!(
        runtime
            .count(Filter::new().state(Status::Completed))
            .await
            .unwrap(),
        10
    );
}

async fn s22_the_robot_can_be_stopped_and_started_again(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    let robot = runtime.spawn();
    runtime
        .start("a", "a", ())
        .await
        .unwrap()
        .outcome()
        .await
        .unwrap();
    robot.shutdown().await;
    robot.shutdown().await;
    let handle = runtime.start("a", "a", ()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(handle.status().await.unwrap(), Status::Pending);
    assert_eq!(ledger.count("a"), 1);
    runtime.spawn();
    handle.outcome().await.unwrap();
}

async fn s22_a_hung_function_does_not_block_others(place: Place) {
    let ledger = Ledger::new();
    let hung = Arc::new(AtomicBool::new(false));
    let hangs = {
        let hung = Arc::clone(&hung);
        Method::new("hangs", move |_| {
            hung.store(true, Ordering::SeqCst);
            std::future::pending::<Result<(), ActionError>>()
        })
    };
    let runtime = place
        .builder()
        .lease(Duration::from_millis(500))
        .register(hangs)
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let stuck = runtime.start("hangs", "hangs", ()).await.unwrap();
    until_true("the action hangs", || hung.load(Ordering::SeqCst)).await;
    for _ in 0..5 {
        runtime
            .start("a", "a", ())
            .await
            .unwrap()
            .outcome()
            .await
            .unwrap();
    }
    // It is still held, several leases later.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let record = stuck.record().await.unwrap();
    assert_eq!((record.state, record.epoch), (Status::Running, 1));
}

async fn s24_register_replace_and_unregister(place: Place) {
    let ledger = Ledger::new();
    let runtime = place.builder().build().await.unwrap();
    runtime.spawn();
    runtime.register(ledger.gives("a", "old")).unwrap();
    runtime.register(ledger.gives("a", "new")).unwrap();
    runtime.register(ledger.gives("b", "b")).unwrap();
    let handle = runtime.start("a", "a", ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap(), doc! { "a": "new" });

    assert!(runtime.unregister("a"));
    assert!(!runtime.unregister("a"));
    let waits = runtime.start("a", "a", ()).await.unwrap();
    let runs = runtime.start("b", "b", ()).await.unwrap();
    runs.outcome().await.unwrap();
    assert_eq!(waits.status().await.unwrap(), Status::Pending);

    runtime.unregister_all();
    let none = runtime.start("b", "b", ()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(none.status().await.unwrap(), Status::Pending);
    let both = [ledger.gives("a", 1), ledger.gives("b", 2)];
    runtime.register_all(both).unwrap();
    waits.outcome().await.unwrap();
    none.outcome().await.unwrap();
}

async fn s24_register_all_or_nothing(place: Place) {
    let ledger = Ledger::new();
    let runtime = place.builder().build().await.unwrap();
    for bad in ["", "$x", "milestone"] {
        let methods = [ledger.gives("a", 1), ledger.gives(bad, 2)];
        let error = runtime.register_all(methods).unwrap_err();
        assert!(error.to_string().len() > 10, "{error}");
        assert!(!runtime.unregister("a"), "none of them is registered");
    }
}

async fn s24_unregistered_while_it_waits(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.fails_first("a", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("a", "a", ()).await.unwrap();
    until(&runtime, handle.id(), |record| !record.report.is_empty()).await;
    runtime.unregister("a");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let runs = ledger.count("a");
    runtime.register(ledger.gives("a", 1)).unwrap();
    handle.outcome().await.unwrap();
    assert!(runs <= 2, "it ran {runs} times without being registered");
}

async fn s24_registered_while_a_sibling_runs(place: Place) {
    let ledger = Ledger::new();
    let go = Arc::new(Notify::new());
    let slow = {
        let go = Arc::clone(&go);
        Method::new("slow", move |_| {
            let go = Arc::clone(&go);
            async move {
                go.notified().await;
                Ok::<_, ActionError>(())
            }
        })
    };
    let runtime = place.builder().register(slow).build().await.unwrap();
    runtime.spawn();
    let graph = Action::fork("both").next(["slow", "later"]);
    let handle = runtime.start("siblings", graph, ()).await.unwrap();
    until(&runtime, handle.id(), |record| {
        record.state == Status::Running
    })
    .await;
    runtime.register(ledger.gives("later", 1)).unwrap();
    until(&runtime, handle.id(), |record| {
        successes(record, "later") == [Some(true)]
    })
    .await;
    go.notify_one();
    handle.outcome().await.unwrap();
}

async fn concurrency_of_an_action(place: Place) {
    let ledger = Ledger::new();
    let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = {
        let (ledger, running) = (ledger.clone(), Arc::clone(&running));
        Method::new("counted", move |_| {
            let (ledger, running) = (ledger.clone(), Arc::clone(&running));
            async move {
                ledger.note((running.fetch_add(1, Ordering::SeqCst) + 1).to_string());
                tokio::time::sleep(Duration::from_millis(5)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, ActionError>(())
            }
        })
        .options(quick().concurrency(2))
    };
    let runtime = place
        .builder()
        .register(counted)
        .register(ledger.gives("free", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let leaves: Vec<_> = (0..6)
        .map(|n| Action::new(format!("a{n}")).method("counted"))
        .collect();
    let wide = Action::fork("wide").next(leaves);
    let first = runtime.start("wide", wide.clone(), ()).await.unwrap();
    let second = runtime.start("wide", wide, ()).await.unwrap();
    runtime
        .start("free", "free", ())
        .await
        .unwrap()
        .outcome()
        .await
        .unwrap();
    first.outcome().await.unwrap();
    second.outcome().await.unwrap();
    let most = ledger
        .entries()
        .into_iter()
        .filter(|entry| entry != "free")
        .max();
    assert_eq!(most.as_deref(), Some("2"));
}
