//! What a runtime is built with: the defaults, and every setting that cannot be.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::time::Duration;

use bson::doc;
use milestone_runtime::{
    Error, RuntimeBuilder,
    action::ActionError,
    core::limits::Limits,
    prelude::*,
    store::{Filter, sqlite::SqliteStore},
};
use milestone_tests::{
    ledger::Ledger,
    look::until,
    on_stores,
    place::{Kind, Place, bare},
};

on_stores!(memory, sqlite, mongodb:
    s25_a_uri_alone,
    s25_collections_are_apart,
    s25_the_lease_is_stored,
    a_missing_state_names_action_and_type,
    a_client_owes_no_state,
    an_unknown_action_names_those_that_there_are,
    limits_can_be_set,
    workers_are_listed,
);

async fn s25_a_uri_alone(place: Place) {
    let ledger = Ledger::new();
    let runtime = Runtime::builder(place.uri())
        .state(Bank(7))
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    runtime
        .start("a", "a", ())
        .await
        .unwrap()
        .outcome()
        .await
        .unwrap();
    if let Some(scratch) = place.scratch() {
        let mut names = scratch.database().list_collection_names().await.unwrap();
        names.sort();
        assert_eq!(names, ["_milestones_", "_milestones_.workers"]);
    }
    if place.kind() == Kind::Memory {
        let other = Runtime::builder("memory:").client().build().await.unwrap();
        assert_eq!(
            other.count(Filter::new()).await.unwrap(),
            0,
            "each is a store of its own"
        );
    }
}

async fn s25_collections_are_apart(place: Place) {
    if place.kind() == Kind::Memory {
        // A memory is one collection: its name is only checked.
        assert!(SqliteStore::memory("").is_err());
        return;
    }
    let one = place.builder().collection("orders").build().await.unwrap();
    let other = place
        .builder()
        .collection("invoices")
        .build()
        .await
        .unwrap();
    one.start("a", "a", ()).await.unwrap();
    assert_eq!(one.count(Filter::new()).await.unwrap(), 1);
    assert_eq!(other.count(Filter::new()).await.unwrap(), 0);
}

async fn s25_the_lease_is_stored(place: Place) {
    for (lease, expected) in [(None, 10_000), (Some(Duration::from_mins(1)), 60_000)] {
        let never = Method::new("never", |_| {
            std::future::pending::<Result<(), ActionError>>()
        });
        let mut builder = place.builder().register(never);
        if let Some(lease) = lease {
            builder = builder.lease(lease);
        }
        let runtime = builder.build().await.unwrap();
        runtime.spawn();
        let handle = runtime.start("never", "never", ()).await.unwrap();
        let record = until(&runtime, handle.id(), |record| record.lease.is_some()).await;
        let lease = record.lease.unwrap();
        let length = lease.until.timestamp_millis() - lease.since.timestamp_millis();
        // It is stored a twentieth shorter, and left alone by others a twentieth longer.
        let stored = expected * 19 / 20;
        assert!((stored..stored + 5_000).contains(&length), "{length}");
        assert_eq!(lease.owner, runtime.worker());
        runtime.remove(handle.id().clone()).await.unwrap();
    }
}

struct Bank(i64);

#[action(idempotent)]
async fn audit(bank: State<Bank>) -> Result<i64, ActionError> {
    Ok(bank.0.0)
}

async fn a_missing_state_names_action_and_type(place: Place) {
    let error = place
        .builder()
        .actions(["audit"])
        .build()
        .await
        .unwrap_err();
    let Error::MissingState { action, state } = &error else {
        panic!("{error}");
    };
    assert_eq!(action, "audit");
    assert!(state.ends_with("Bank"), "{state}");
    assert!(error.to_string().contains("`.state(..)`"), "{error}");
}

async fn a_client_owes_no_state(place: Place) {
    let client = place
        .builder()
        .actions(["audit"])
        .client()
        .build()
        .await
        .unwrap();
    client.spawn();
    let handle = milestone!(audit).start(&client, ()).await.unwrap();
    let worker = place
        .builder()
        .actions(["audit"])
        .state(Bank(7))
        .build()
        .await
        .unwrap();
    worker.spawn();
    assert_eq!(handle.outcome().await.unwrap(), 7);
}

async fn an_unknown_action_names_those_that_there_are(place: Place) {
    let error = place
        .builder()
        .actions(["audit", "adit"])
        .build()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::UnknownAction { .. }));
    let text = error.to_string();
    assert!(text.contains("`adit`") && text.contains("audit"), "{text}");
}

async fn limits_can_be_set(place: Place) {
    let builder = place.builder().limits(Limits::new().parameters(100));
    let runtime = builder.build().await.unwrap();
    let error = runtime.start("a", "a", "x".repeat(200)).await.unwrap_err();
    assert!(error.to_string().contains("`parameters` is 100"), "{error}");
}

async fn workers_are_listed(place: Place) {
    let ledger = Ledger::new();
    let builder = place
        .builder()
        .worker_name("till-1")
        .register(ledger.gives("a", 1));
    let runtime = builder.build().await.unwrap();
    assert!(
        runtime.worker().starts_with("till-1-"),
        "{}",
        runtime.worker()
    );
    let began = std::time::Instant::now();
    let worker = loop {
        let workers = runtime.workers().await.unwrap();
        if let Some(worker) = workers
            .into_iter()
            .find(|worker| worker.id == runtime.worker())
        {
            break worker;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it does not tell that it lives"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(
        (&*worker.name, &*worker.methods),
        ("till-1", &["a".to_owned()][..])
    );
    let graph = runtime.start("empty", "a", doc! {}).await.unwrap();
    assert!(graph.status().await.is_ok());
}

/// Builds what cannot be built, and gives the error's text.
async fn refused(builder: RuntimeBuilder) -> String {
    let error = builder.build().await.unwrap_err();
    assert_eq!(error.code(), "setting", "{error}");
    error.to_string()
}

#[tokio::test]
async fn s25_bad_settings_say_what_is_accepted() {
    let new = || bare("memory:");
    let lease = refused(new().lease(Duration::ZERO)).await;
    assert!(
        lease.contains("`lease` cannot be 0ns: a lease is from 100 ms to 24 h"),
        "{lease}"
    );
    let lease = refused(new().lease(Duration::from_hours(25))).await;
    assert!(lease.contains("the default is 10 s"), "{lease}");
    let poll = refused(new().poll(Duration::ZERO)).await;
    assert!(
        poll.contains("`poll`") && poll.contains("from 1 ms to 1 h"),
        "{poll}"
    );
    let poll = refused(new().poll(Duration::from_hours(2))).await;
    assert!(poll.contains("the default is 1 s"), "{poll}");
    let places = refused(new().concurrency(0)).await;
    assert!(places.contains("from 1 to 100,000"), "{places}");
    let name = refused(new().worker_name("")).await;
    assert!(name.contains("from 1 to 256 bytes"), "{name}");
}

#[tokio::test]
async fn s25_other_uris_say_what_is_accepted() {
    for uri in [
        "",
        "bank.db",
        "postgres://me:secret@host/bank",
        "sqlite:",
        "mongodb://",
    ] {
        let error = bare(uri).build().await.unwrap_err();
        assert_eq!(error.code(), "store_uri", "{uri}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("accepted") && text.contains("mongodb+srv://"),
            "{uri}: {text}"
        );
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn without_tokio_the_error_says_so() {
    let build = bare("memory:").build();
    let mut build = std::pin::pin!(build);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = build.as_mut().poll(&mut context) else {
        panic!("it waits for something");
    };
    assert_eq!(error.code(), "no_executor");
}
