//! Writes that fail at the worst time, since the network is cut: those that release a lease, and those that tell of a failure.

use std::{sync::Arc, time::Duration};

use milestone_runtime::{
    Handle, Method, Runtime,
    action::ActionError,
    core::record::{AttemptKind, MilestoneRecord, Status},
    dynamic::Action,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    load::Kind,
    look::until_true,
    place::{bare, mongodb_uri, run_async},
    proxy::Proxy,
};

use tokio::sync::Notify;

use super::bench::{Bench, LEASE, start_many};

/// A proxy before the server, and the URI of a database behind it.
async fn proxy(bench: &Bench) -> (Arc<Proxy>, String) {
    let server = bench.server.address();
    let proxy = Proxy::to(server.clone()).await;
    let uri = bench.uri().replace(&server, &proxy.address().to_string());
    (Arc::new(proxy), uri)
}

/// A worker of which the network is cut when the action is at work, and which then ends it in its own way.
async fn cut_off(uri: &str, proxy: &Arc<Proxy>, ledger: &Ledger, fails: bool) -> Runtime {
    let (proxy, ledger) = (Arc::clone(proxy), ledger.clone());
    let action = Method::new("action", move |_| {
        ledger.note("first");
        proxy.away(true);
        async move {
            if fails {
                return Err::<(), _>(ActionError::new("the user's own error"));
            }
            std::future::pending().await
        }
    });
    let builder = bare(uri).lease(LEASE).register(action.options(quick()));
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    runtime
}

/// Another worker ends what the first one holds, and all else.
async fn other_ends(
    bench: &Bench,
    ledger: &Ledger,
    handle: &Handle<bson::Document>,
) -> MilestoneRecord {
    let other = bare(bench.uri())
        .lease(LEASE)
        .register(ledger.gives("action", 1));
    let other = other.build().await.unwrap();
    other.spawn();
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(other.start("Other", "action", ()).await.unwrap());
    }
    for handle in &others {
        handle.outcome().await.unwrap();
    }
    let until = |record: &MilestoneRecord| record.state == Status::Completed;
    milestone_tests::look::until(&other, handle.id(), until).await
}

async fn start(bench: &Bench) -> Handle<bson::Document> {
    let client = bare(bench.uri()).client().build().await.unwrap();
    let graph = Action::new("action").idempotent();
    client.start("One", graph, ()).await.unwrap()
}

/// The write that tells of an error, and gives the lease back, never comes: the lease ends by itself, and the action runs elsewhere. When
/// the network is back, what the first worker still wants to say changes nothing.
#[test]
fn f07_f08_the_error_cannot_be_told_and_the_lease_not_released() {
    run_async(async {
        let bench = Bench::new().await;
        let (proxy, uri) = proxy(&bench).await;
        let ledger = Ledger::new();
        let handle = start(&bench).await;
        let _first = cut_off(&uri, &proxy, &ledger, true).await;
        until_true("it runs", || ledger.count("first") > 0).await;
        let record = other_ends(&bench, &ledger, &handle).await;
        let abandoned = record.report.last().unwrap();
        assert_eq!(
            (abandoned.kind, &abandoned.error),
            (Some(AttemptKind::Abandoned), &None)
        );
        assert_eq!(record.report.len(), 2, "{record:#?}");

        // It learns of its loss.
        proxy.away(false);
        until_true("it asks what it holds", || proxy.open() > 0).await;
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(handle.record().await.unwrap(), record);
    });
}

/// A worker shuts down, and the write that hands its work back never comes.
#[test]
fn f07_a_shutdown_cannot_hand_back() {
    run_async(async {
        let bench = Bench::new().await;
        let (proxy, uri) = proxy(&bench).await;
        let ledger = Ledger::new();
        let handle = start(&bench).await;
        let first = cut_off(&uri, &proxy, &ledger, false).await;
        until_true("it runs", || ledger.count("first") > 0).await;
        first.shutdown_within(Duration::from_millis(50)).await;
        drop(first);
        let record = other_ends(&bench, &ledger, &handle).await;
        assert_eq!(record.report.len(), 2, "{record:#?}");
        assert_eq!(ledger.count("first"), 1);
    });
}

/// All connections are cut again and again while milestones run, so often however quick or slow the machine is: where 100 milestones end
/// before, 100 others follow. Nothing runs twice, since the worker lives.
#[test]
fn connections_that_are_cut_again_and_again() {
    run_async(async {
        let bench = Bench::new().await;
        let (proxy, uri) = proxy(&bench).await;
        let worker = bench.builder(&uri).build().await.unwrap();
        worker.spawn();
        let cutting = tokio::spawn(cut_again_and_again(Arc::clone(&proxy)));
        let kinds = [Kind::Charge, Kind::Saga, Kind::Fan, Kind::Retry];
        for round in 1.. {
            let started = start_many(&worker, &format!("round-{round}"), &kinds, 100).await;
            for started in &started {
                let record = bench.ends_well(started).await;
                assert!(
                    record.report.iter().all(|attempt| attempt.kind.is_none()),
                    "{record:#?}"
                );
            }
            if cutting.is_finished() {
                break;
            }
        }
        cutting.await.unwrap();
    });
}

/// Cuts 20 times. Where it finds no connection open, it has cut nothing, and tries again. That it ends lets a machine on which little is done
/// between two cuts come to an end as well.
async fn cut_again_and_again(proxy: Arc<Proxy>) {
    let mut cuts = 0;
    while cuts < 20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cuts += usize::from(proxy.cut() > 0);
    }
}

/// The server holds the writes of one worker back for longer than a lease, and carries them out then: late copies. Another worker has taken
/// over, so they change nothing.
#[test]
fn writes_that_come_after_the_lease() {
    run_async(async {
        let bench = Bench::new().await;
        let ledger = Ledger::new();
        let held_back = Arc::new(Notify::new());
        let late = Method::new("action", {
            let (ledger, held_back) = (ledger.clone(), Arc::clone(&held_back));
            move |_| {
                ledger.note("first");
                let held_back = Arc::clone(&held_back);
                async move {
                    held_back.notified().await;
                    Ok::<_, ActionError>("late")
                }
            }
        });
        let uri =
            mongodb_uri(&bench.server.uri(), "subject").replace("appName=subject", "appName=late");
        let first = bare(uri).lease(LEASE).register(late.options(quick()));
        let first = first.build().await.unwrap();
        let handle = start(&bench).await;
        first.spawn();
        until_true("it runs", || ledger.count("first") > 0).await;
        let blocked = i64::try_from((3 * LEASE).as_millis()).unwrap();
        let data = bson::doc! { "failCommands": ["update"], "blockConnection": true, "blockTimeMS": blocked };
        bench.server.fail("late", "alwaysOn", data).await;
        held_back.notify_one();
        let record = other_ends(&bench, &ledger, &handle).await;
        assert_eq!(ledger.count("first"), 1);
        bench.server.fail("late", "off", bson::doc! {}).await;
        tokio::time::sleep(4 * LEASE).await;
        let after = handle.record().await.unwrap();
        assert_eq!(after.report, record.report);
        assert_eq!(after.actions, record.actions);
        assert_eq!(ledger.count("first"), 1);
    });
}
