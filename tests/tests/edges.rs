//! What hostile tests have found: each kind of fault, as small as it gets.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{sync::Arc, time::Duration};

use bson::doc;
use milestone_runtime::{
    Method, StartError, Status,
    action::{ActionError, Options},
};
use milestone_tests::{
    flaky::Flaky,
    ledger::{Ledger, quick},
    look::{action, until, until_true},
    on_stores,
    place::Place,
};

on_stores!(memory, sqlite, mongodb:
    maps_that_look_like_extended_json_stay_maps,
    a_limited_action_does_not_hold_up_another,
    the_turn_of_a_limited_action_waits_for_no_poll,
    what_is_retried_at_once_leaves_its_place_to_others,
    many_that_wait_do_not_hide_one_that_ends,
    nothing_begins_after_a_shutdown_without_a_database,
    a_start_of_unknown_fate_is_settled_later_and_runs_once,
    a_runtime_whose_executor_is_gone_holds_nothing,
    an_attempt_that_has_no_executor_has_not_begun,
    a_huge_grace_ends_nothing,
);

async fn maps_that_look_like_extended_json_stay_maps(place: Place) {
    let odd = serde_json::json!({
        "id": { "$oid": "507f1f77bcf86cd799439011" }, "number": { "$numberLong": "5" }, "date": { "$date": 7 }, "": { "a.b": { "$x": 1 } },
    });
    let given = odd.clone();
    let echo = Method::new("echo", move |_| {
        let given = given.clone();
        async move { Ok::<_, ActionError>(given) }
    });
    let runtime = place.builder().register(echo).build().await.unwrap();
    runtime.spawn();
    let handle = runtime.start("odd", "echo", &odd).await.unwrap();
    let outputs = handle.outcome().await.unwrap();
    let expected = doc! {
        "id": { "$oid": "507f1f77bcf86cd799439011" }, "number": { "$numberLong": "5" }, "date": { "$date": 7_i64 }, "": { "a.b": { "$x": 1_i64 } },
    };
    let same = |value: &bson::Bson| {
        let value: serde_json::Value = bson::deserialize_from_bson(value.clone()).unwrap();
        assert_eq!(value, odd);
    };
    same(outputs.get("echo").unwrap());
    let parameters = handle.record().await.unwrap().parameters;
    same(&parameters);
    assert_eq!(
        parameters.as_document().unwrap().get("id"),
        expected.get("id")
    );
}

async fn a_limited_action_does_not_hold_up_another(place: Place) {
    let ledger = Ledger::new();
    let (_open, closed) = tokio::sync::watch::channel(false);
    let slow = Method::new("slow", move |_| {
        let mut closed = closed.clone();
        async move {
            let _ = closed.wait_for(|open| *open).await;
            Ok::<_, ActionError>(())
        }
    });
    let runtime = place
        .builder()
        .concurrency(10)
        .register(slow.options(quick().concurrency(1)))
        .register(ledger.gives("fast", 1))
        .build()
        .await
        .unwrap();
    for _ in 0..40 {
        runtime.start("slow", "slow", ()).await.unwrap();
    }
    runtime.spawn();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let client = place.builder().client().build().await.unwrap();
    for _ in 0..5 {
        client
            .start(
                "fast",
                milestone_runtime::dynamic::Action::new("fast").idempotent(),
                (),
            )
            .await
            .unwrap();
    }
    until_true("the others run", || ledger.count("fast") == 5).await;
}

async fn the_turn_of_a_limited_action_waits_for_no_poll(place: Place) {
    let ledger = Ledger::new();
    let noted = ledger.clone();
    let slow = Method::new("slow", move |_| {
        noted.note("slow");
        async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Ok::<_, ActionError>(())
        }
    });
    let worker = place
        .builder()
        .poll(Duration::from_mins(10))
        .register(slow.options(quick().concurrency(1)))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let client = place.builder().client().build().await.unwrap();
    // Those behind the first one become due while it runs, when the worker looks for none of them.
    for _ in 0..3 {
        let action = milestone_runtime::dynamic::Action::new("slow").idempotent();
        client.start("slow", action, ()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    until_true("all have run", || ledger.count("slow") == 3).await;
}

async fn what_is_retried_at_once_leaves_its_place_to_others(place: Place) {
    let ledger = Ledger::new();
    let bad = Method::new("bad", |_| async {
        Err::<(), _>(ActionError::retry_after(Duration::ZERO, "again"))
    });
    let worker = place
        .builder()
        .concurrency(1)
        .register(bad.options(quick()))
        .register(ledger.gives("good", 1))
        .build()
        .await
        .unwrap();
    for kind in ["bad", "bad", "good", "good", "good"] {
        worker.start(kind, kind, ()).await.unwrap();
    }
    worker.spawn();
    until_true("the others run", || ledger.count("good") == 3).await;
}

async fn many_that_wait_do_not_hide_one_that_ends(place: Place) {
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..300 {
        let handle = client.start("never", "never", ()).await.unwrap();
        waiting.push(tokio::spawn(async move { handle.outcome().await }));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let worker = place
        .builder()
        .register(ledger.gives("one", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    for _ in 0..10 {
        let handle = client.start("one", "one", ()).await.unwrap();
        handle.outcome().await.unwrap();
    }
    for task in waiting {
        task.abort();
    }
}

async fn nothing_begins_after_a_shutdown_without_a_database(place: Place) {
    let ledger = Ledger::new();
    let store = Flaky::new(place.store().await);
    let (noted, network) = (ledger.clone(), Arc::clone(&store));
    let body = Method::new("body", move |_| {
        let (noted, network) = (noted.clone(), Arc::clone(&network));
        async move {
            noted.note("body");
            if noted.count("body") >= 5 {
                network.away(true);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, ActionError>(())
        }
    });
    let runtime = place
        .builder()
        .store(Arc::clone(&store) as _)
        .concurrency(4)
        .register(body.options(quick()))
        .build()
        .await
        .unwrap();
    for _ in 0..100 {
        runtime.start("body", "body", ()).await.unwrap();
    }
    runtime.spawn();
    until_true("some have begun", || ledger.count("body") > 4).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    runtime.shutdown_within(Duration::from_millis(200)).await;
    let begun = ledger.count("body");
    store.away(false);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(ledger.count("body"), begun);
    assert!(begun < 100);
}

async fn a_start_of_unknown_fate_is_settled_later_and_runs_once(place: Place) {
    let ledger = Ledger::new();
    let store = Flaky::new(place.store().await);
    let runtime = place
        .builder()
        .store(Arc::clone(&store) as _)
        .start_timeout(Duration::from_millis(300))
        .register(ledger.gives("once", 1).options(Options::plain()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    store.lose_one_in(1);
    let error = runtime.start("once", "once", ()).id("x").await.unwrap_err();
    assert!(matches!(error, StartError::Unknown { .. }), "{error}");
    store.lose_one_in(0);
    let handle = runtime.start("once", "once", ()).id("x").await.unwrap();
    handle.outcome().await.unwrap();
    assert_eq!(ledger.count("once"), 1);
}

async fn a_runtime_whose_executor_is_gone_holds_nothing(place: Place) {
    let ledger = Ledger::new();
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let builder = place.builder().register(ledger.gives("one", 1));
    let orphan = executor
        .spawn(async move { builder.build().await.unwrap() })
        .await
        .unwrap();
    orphan.spawn();
    executor.shutdown_background();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let client = place.builder().client().build().await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..5 {
        handles.push(
            client
                .start(
                    "one",
                    milestone_runtime::dynamic::Action::new("one").idempotent(),
                    (),
                )
                .await
                .unwrap(),
        );
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let healthy = place
        .builder()
        .register(ledger.gives("one", 1))
        .build()
        .await
        .unwrap();
    healthy.spawn();
    for handle in handles {
        handle.outcome().await.unwrap();
    }
}

async fn an_attempt_that_has_no_executor_has_not_begun(place: Place) {
    let ledger = Ledger::new();
    let blocks = Method::new("blocks", |_| async {
        std::thread::sleep(Duration::from_millis(1500));
        Ok::<_, ActionError>(())
    });
    let builder = place.builder().register(blocks.options(quick())).register(
        ledger
            .gives("quick", 1)
            .options(Options::plain().timeout(Duration::from_millis(100))),
    );
    // One thread, which the first action blocks while the second one waits for it beyond its timeout.
    let thread = std::thread::spawn(move || {
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        executor.block_on(async move {
            let runtime = builder.build().await.unwrap();
            let blocked = runtime.start("blocks", "blocks", ()).await.unwrap();
            let waits = runtime.start("quick", "quick", ()).await.unwrap();
            runtime.spawn();
            blocked.outcome().await.unwrap();
            waits.outcome().await.unwrap();
        });
    });
    tokio::task::spawn_blocking(move || thread.join().unwrap())
        .await
        .unwrap();
    assert_eq!(ledger.count("quick"), 1);
}

async fn a_huge_grace_ends_nothing(place: Place) {
    let ledger = Ledger::new();
    let error = place
        .builder()
        .grace(Duration::MAX)
        .build()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("`grace`"), "{error}");
    let runtime = place
        .builder()
        .register(
            ledger
                .gives("one", 1)
                .options(Options::plain().timeout(Duration::MAX)),
        )
        .register(
            ledger
                .fails_for_good("bad")
                .options(Options::plain().timeout(Duration::MAX)),
        )
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let bad = runtime.start("bad", "bad", ()).await.unwrap();
    let record = until(&runtime, bad.id(), |record| record.state == Status::Failed).await;
    assert_eq!(action(&record, "bad").attempts, 1);
    runtime
        .start("one", "one", ())
        .await
        .unwrap()
        .outcome()
        .await
        .unwrap();
    runtime.shutdown_within(Duration::MAX).await;
}
