//! What all workers do beside their work.

use std::{sync::Arc, time::Duration};

use ::mongodb::Collection;
use bson::{DateTime, Document, doc};
use milestone_runtime::{
    Filter, Method, Runtime,
    action::{ActionError, Call},
    core::record::Status,
    dynamic::Action,
    store::WorkerInfo,
};
use milestone_tests::{
    checker::checked,
    ledger::{Ledger, quick},
    logs,
    look::until_true,
    on_stores,
    place::{Kind, Place, run},
    transfer::{self, SKEW, marked},
};

on_stores!(sqlite, mongodb:
    f41_workers_open_one_place_at_once,
    f41_two_remove_the_same,
);

/// Nothing that these workers do is worth a warning.
fn assert_quiet<'r>(workers: impl IntoIterator<Item = &'r Runtime>) {
    for worker in workers {
        let lines = logs::lines_with(worker.worker());
        let loud: Vec<_> = lines
            .iter()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "))
            .collect();
        assert!(loud.is_empty(), "{loud:#?}");
    }
}

/// F41: eight workers open a place that is not there yet, all at once: collections, tables and indexes are made once, all of them work, and
/// each is in the list of workers until it ends.
async fn f41_workers_open_one_place_at_once(place: Place) {
    const WORKERS: usize = 8;
    logs::collect();
    let ledger = Ledger::new();
    let building = (0..WORKERS).map(|_| {
        let builder = place.builder().register(ledger.gives("a", 1));
        tokio::spawn(builder.build())
    });
    let mut workers = Vec::new();
    for built in futures_util::future::join_all(building).await {
        workers.push(built.unwrap().unwrap());
    }
    for worker in &workers {
        worker.spawn();
        let handle = worker.start("a", "a", ()).await.unwrap();
        handle.outcome().await.unwrap();
    }
    if let Some(scratch) = place.scratch() {
        let milestones = scratch.database().collection::<Document>("_milestones_");
        let mut names = milestones.list_index_names().await.unwrap();
        names.sort();
        assert_eq!(names, ["_id_", "milestone_expire", "milestone_next"]);
    }
    let mut listed = Vec::new();
    while listed.len() < WORKERS {
        listed = workers[0].workers().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stopping = workers.iter().map(Runtime::shutdown);
    futures_util::future::join_all(stopping).await;
    assert_eq!(workers[0].workers().await.unwrap(), []);
    assert_quiet(&workers);
    checked(&workers[0]).await;
}

/// F41: two remove the same milestones at once. Each is removed once, and no other one.
async fn f41_two_remove_the_same(place: Place) {
    logs::collect();
    let ledger = Ledger::new();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let builder = place.builder().register(ledger.gives("a", 1));
        workers.push(builder.build().await.unwrap());
    }
    for worker in &workers {
        worker.spawn();
    }
    let mut ids = Vec::new();
    for number in 0..40 {
        let handle = workers[number % 2].start("a", "a", ()).await.unwrap();
        handle.outcome().await.unwrap();
        ids.push(handle.id().clone());
    }
    let (removed, kept) = ids.split_at(20);
    for id in removed {
        let [one, other] = [0, 1].map(|at| workers[at].remove(id.clone()));
        let (one, other) = tokio::join!(one, other);
        assert!(one.unwrap() != other.unwrap(), "one of them removes {id}");
    }
    let filter = Filter::new().state(Status::Completed);
    assert_eq!(workers[0].count(filter).await.unwrap(), kept.len() as u64);
    assert_quiet(&workers);
    checked(&workers[0]).await;
}

/// An action that writes once, for the account of its milestone's id.
fn pays(accounts: &Collection<Document>) -> Method {
    let accounts = accounts.clone();
    Method::new("pays", move |call: Call| {
        let (accounts, cx) = (accounts.clone(), call.context().clone());
        async move {
            let account = doc! { "_id": call.parameters().clone() };
            let pay = doc! { "$inc": { "balance": -1 } };
            cx.once(&accounts).update_one(account, pay).await?;
            Ok::<_, ActionError>(())
        }
    })
    .options(quick())
}

/// F41: the cleaners of three workers look after the same traces: those of a worker that is gone are found by the sweeps of both others.
/// All markers go, each write stays, and there is nothing to complain about.
#[test]
fn f41_cleaners_sweep_up_the_same_traces() {
    run(Kind::MongoDb, |place: Place| async move {
        const ACCOUNTS: usize = 30;
        logs::collect();
        let scratch = place.scratch().unwrap();
        let accounts = scratch.database().collection::<Document>("accounts");
        let names: Vec<String> = (0..ACCOUNTS).map(|number| format!("a{number}")).collect();
        let accounts_of: Vec<&str> = names.iter().map(String::as_str).collect();
        transfer::open(&accounts, &accounts_of).await;
        let mut workers = Vec::new();
        for _ in 0..3 {
            let builder = place.builder().clock_skew(SKEW).register(pays(&accounts));
            workers.push(builder.build().await.unwrap());
        }
        let gone = workers.pop().unwrap();
        gone.spawn();
        for name in &names {
            let graph = Action::new("pays").idempotent();
            let handle = gone.start("pays", graph, name).await.unwrap();
            handle.outcome().await.unwrap();
        }
        assert!(marked(&accounts).await > 0, "it has left traces");
        drop(gone);
        for worker in &workers {
            worker.spawn();
        }
        transfer::until_clean(&accounts).await;
        for name in &names {
            let account = accounts
                .find_one(doc! { "_id": name })
                .await
                .unwrap()
                .unwrap();
            assert_eq!(account.get_i32("balance").unwrap(), 99, "{account}");
        }
        let filter = Filter::new().state(Status::Completed);
        assert_eq!(workers[0].count(filter).await.unwrap(), ACCOUNTS as u64);
        assert_quiet(&workers);
    });
}

/// F41: on SQLite whoever tells that it lives removes what has expired. Two do so at once, again and again: what has expired is gone, and
/// nothing else.
#[test]
fn f41_two_remove_what_has_expired_on_sqlite() {
    run(Kind::Sqlite, |place: Place| async move {
        let ledger = Ledger::new();
        let runtime = place.builder().register(ledger.gives("a", 1)).build().await;
        let runtime = runtime.unwrap();
        runtime.spawn();
        for number in 0..60 {
            let handle = runtime.start("a", "a", ()).await.unwrap();
            handle.outcome().await.unwrap();
            let mut document = place.raw(handle.id().clone()).await.unwrap();
            if number % 2 == 0 {
                document.insert("expireAt", DateTime::from_millis(1_000));
                place.plant(document).await;
            }
        }
        let stores = [place.store().await, place.store().await];
        let now = stores[0].now().await.unwrap();
        let beats = stores.iter().enumerate().map(|(number, store)| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for _ in 0..20 {
                    let id = format!("w{number}");
                    let worker = WorkerInfo {
                        name: id.clone(),
                        id,
                        methods: Vec::new(),
                        queues: Vec::new(),
                        since: now,
                        seen_at: now,
                        next_at: now,
                    };
                    store.heartbeat(worker).await.unwrap();
                }
            })
        });
        for beats in futures_util::future::join_all(beats).await {
            beats.unwrap();
        }
        until_true("all have run", || ledger.count("a") == 60).await;
        assert_eq!(runtime.count(Filter::new()).await.unwrap(), 30);
        checked(&runtime).await;
    });
}
