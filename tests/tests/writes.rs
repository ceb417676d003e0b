//! What a milestone costs: writes, counted by the driver's command events, and time.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ::mongodb::event::{EventHandler, command::CommandEvent};
use milestone_runtime::{
    Runtime, RuntimeBuilder,
    core::record::Status,
    dynamic::Action,
    store::mongodb::{DEFAULT_COLLECTION, MongoStore},
};
use milestone_tests::{
    ledger::Ledger,
    on_stores,
    place::{Kind, Place, bare, run_async},
    server::Scratch,
};

/// The write commands of a client to the milestones, by their names.
#[derive(Clone, Default)]
struct Writes(Arc<Mutex<BTreeMap<String, usize>>>);

impl Writes {
    const NAMES: [&str; 5] = ["insert", "update", "findAndModify", "bulkWrite", "delete"];

    fn handler(&self) -> EventHandler<CommandEvent> {
        let writes = self.clone();
        EventHandler::callback(move |event| {
            let CommandEvent::Started(started) = event else {
                return;
            };
            let target = started.command.get_str(&started.command_name).ok();
            if Self::NAMES.contains(&&*started.command_name) && target == Some(DEFAULT_COLLECTION) {
                *writes
                    .0
                    .lock()
                    .unwrap()
                    .entry(started.command_name)
                    .or_default() += 1;
            }
        })
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().values().sum()
    }
}

async fn counted(scratch: &Scratch, ledger: &Ledger) -> (Writes, Runtime) {
    let writes = Writes::default();
    let mut options = scratch.options().await;
    options.command_event_handler = Some(writes.handler());
    let store = MongoStore::new(options, scratch.name(), DEFAULT_COLLECTION);
    let builder = bare("").store(Arc::new(store)).poll(Duration::from_mins(1));
    // No renewal is due, however long it takes.
    let mut builder = builder.lease(Duration::from_hours(1));
    for n in 1..=10 {
        builder = builder.register(ledger.gives(&format!("a{n}"), n));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    (writes, runtime)
}

#[test]
fn s26_a_chain_of_n_actions_costs_n_plus_1_writes() {
    run_async(async {
        let scratch = Scratch::new().await;
        let ledger = Ledger::new();
        let (writes, runtime) = counted(&scratch, &ledger).await;
        for n in [1, 2, 5, 10] {
            let mut graph = Action::new(format!("a{n}"));
            for before in (1..n).rev() {
                graph = Action::new(format!("a{before}")).next([graph]);
            }
            let before = writes.count();
            let handle = runtime.start("chain", graph, ()).await.unwrap();
            handle.outcome().await.unwrap();
            assert_eq!(
                writes.count() - before,
                n + 1,
                "{n} actions: {:?}",
                writes.0
            );
        }
    });
}

/// A failed attempt and its retry: the failure with the hand-back, and the claim, which begins the next one.
#[test]
fn s26_a_retry_costs_two_writes_more() {
    run_async(async {
        let scratch = Scratch::new().await;
        let ledger = Ledger::new();
        let (writes, runtime) = counted(&scratch, &ledger).await;
        runtime.register(ledger.fails_first("f", 2)).unwrap();
        let before = writes.count();
        let handle = runtime.start("fails", "f", ()).await.unwrap();
        handle.outcome().await.unwrap();
        assert_eq!(ledger.count("f"), 3);
        assert_eq!(writes.count() - before, 2 + 2 * 2, "{:?}", writes.0);
    });
}

/// Started by a client: one write more, the claim, which begins the first action.
#[test]
fn s26_a_chain_that_another_process_started_costs_n_plus_2_writes() {
    run_async(async {
        let scratch = Scratch::new().await;
        let ledger = Ledger::new();
        let (writes, runtime) = counted(&scratch, &ledger).await;
        let store = MongoStore::new(scratch.options().await, scratch.name(), DEFAULT_COLLECTION);
        let client = bare("").store(Arc::new(store)).client();
        let client = client.build().await.unwrap();
        // The worker is told of a start once its stream is open, which it tells first.
        while runtime.metrics().hints == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for n in [1, 2, 5] {
            let mut graph = Action::new(format!("a{n}")).idempotent();
            for before in (1..n).rev() {
                graph = Action::new(format!("a{before}")).idempotent().next([graph]);
            }
            let before = writes.count();
            let handle = client.start("chain", graph, ()).await.unwrap();
            handle.outcome().await.unwrap();
            // The client has counted none of its own, which is the insert.
            assert_eq!(
                writes.count() - before + 1,
                n + 2,
                "{n} actions: {:?}",
                writes.0
            );
        }
    });
}

#[test]
fn s26_many_writes_share_a_command() {
    run_async(async {
        let scratch = Scratch::new().await;
        let ledger = Ledger::new();
        let (writes, runtime) = counted(&scratch, &ledger).await;
        let starts = (0..100).map(|_| runtime.start("one", "a1", ()).into_future());
        for handle in futures_util::future::join_all(starts).await {
            handle.unwrap().outcome().await.unwrap();
        }
        assert!(writes.count() < 100, "{:?}", writes.0);
    });
}

on_stores!(memory, sqlite, mongodb: s26_a_fan_out_of_500);

/// A fan-out of 500 with 1 KiB each.
async fn fan_out(builder: RuntimeBuilder) -> Duration {
    let ledger = Ledger::new();
    let runtime = builder
        .concurrency(500)
        .register(ledger.gives("root", 1))
        .register(ledger.gives("leaf", "x".repeat(1024)))
        .register(ledger.gives("end", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let leaves = (0..500).map(|n| Action::new(format!("leaf-{n}")).method("leaf"));
    let graph = Action::new("root").next(leaves).done("end");
    let began = Instant::now();
    let handle = runtime.start("fan", graph, ()).await.unwrap();
    handle.outcome().await.unwrap();
    let took = began.elapsed();
    assert_eq!(handle.status().await.unwrap(), Status::Completed);
    assert_eq!(ledger.count("leaf"), 500);
    took
}

async fn s26_a_fan_out_of_500(place: Place) {
    let took = fan_out(place.builder()).await;
    println!(
        "a fan-out of 500 with 1 KiB each on {:?}: {took:?}",
        place.kind()
    );
    // It takes a third of a second; the compatible server takes a second for each update of 1,500 fields. The machine may be busy.
    let most = if place.kind() == Kind::MongoDb {
        60
    } else {
        10
    };
    assert!(took < Duration::from_secs(most), "{took:?}");
}

#[test]
fn s26_a_fan_out_of_500_is_few_writes() {
    run_async(async {
        let scratch = Scratch::new().await;
        let writes = Writes::default();
        let mut options = scratch.options().await;
        options.command_event_handler = Some(writes.handler());
        let store = MongoStore::new(options, scratch.name(), DEFAULT_COLLECTION);
        let builder = bare("").store(Arc::new(store)).poll(Duration::from_mins(1));
        fan_out(builder.lease(Duration::from_hours(1))).await;
        assert!(writes.count() <= 50, "{:?}", writes.0);
    });
}
