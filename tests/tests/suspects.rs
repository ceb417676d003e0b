//! A milestone that kills its workers is run alone, then parked (F13): it takes neither other milestones nor workers down for ever.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::Bson;
use milestone_runtime::{
    Method, Status,
    action::ActionError,
    core::{
        lease::{PARKED_FROM, SUSPECT_FROM},
        machine::check,
        record::AttemptKind,
    },
    dynamic::Action,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    look::{attempts, until, until_true},
    on_stores,
    place::Place,
};
use tokio::process::Command;

on_stores!(steadily LEASE, memory, sqlite, mongodb:
    a_suspect_runs_alone,
    what_takes_longer_than_a_lease_is_not_waited_for_at_any_price,
    a_suspect_that_only_takes_long_stops_nothing_for_ever,
);

mod killed {
    use super::f13_an_action_that_kills_its_process_is_parked;

    milestone_tests::on_stores!(sqlite, mongodb: f13_an_action_that_kills_its_process_is_parked);
}

const LEASE: Duration = Duration::from_millis(500);

async fn f13_an_action_that_kills_its_process_is_parked(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    let killer = client
        .start("killer", Action::new("dies").idempotent(), ())
        .await
        .unwrap();
    let mut innocents = Vec::new();
    for _ in 0..8 {
        innocents.push(
            client
                .start("innocent", Action::new("lives").idempotent(), ())
                .await
                .unwrap(),
        );
    }
    // Somebody starts the worker again whenever it dies.
    let mut deaths = 0;
    let record = loop {
        let mut worker = Command::new(env!("CARGO_BIN_EXE_killer"))
            .arg(place.uri())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let record = loop {
            let record = killer.record().await.unwrap();
            if record.hold.is_some() || worker.try_wait().unwrap().is_some() {
                break record;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        if record.hold.is_some() {
            for innocent in &innocents {
                until(&client, innocent.id(), |record| {
                    record.state == Status::Completed
                })
                .await;
            }
            worker.kill().await.unwrap();
            break record;
        }
        deaths += 1;
        assert!(deaths <= PARKED_FROM, "it takes workers down for ever");
    };
    assert_eq!((deaths, record.losses), (PARKED_FROM, PARKED_FROM));
    let hold = record.hold.unwrap();
    assert_eq!(hold.by, "milestone");
    assert!(
        hold.reason.starts_with("parked: 7 workers in a row"),
        "{}",
        hold.reason
    );
    for innocent in innocents {
        let record = innocent.record().await.unwrap();
        assert_eq!(check(&record), []);
        let lost = attempts(&record, "lives")
            .iter()
            .filter(|attempt| attempt.kind == Some(AttemptKind::Abandoned))
            .count();
        assert!(
            i64::try_from(lost).unwrap() <= SUSPECT_FROM,
            "once it was a suspect, nothing else died with it: {lost}"
        );
    }
    let record = killer.record().await.unwrap();
    assert_eq!(check(&record), []);
    assert!(
        record.next.is_none(),
        "nobody looks at it until it is resumed"
    );
}

/// Stores a milestone with which two workers have died.
async fn plant_suspect(place: &Place, method: &str) -> milestone_runtime::Handle<bson::Document> {
    let client = place.builder().client().build().await.unwrap();
    let handle = client
        .start("suspect", Action::new(method).idempotent(), ())
        .await
        .unwrap();
    let mut document = place.raw(handle.id().clone()).await.unwrap();
    document.insert("losses", Bson::Int64(SUSPECT_FROM));
    place.plant(document).await;
    handle
}

/// An action that takes a while, and notes whether another one ran beside it.
fn slow(
    name: &'static str,
    running: &Arc<AtomicUsize>,
    met: &Arc<AtomicBool>,
    millis: u64,
) -> Method {
    let (running, met) = (Arc::clone(running), Arc::clone(met));
    Method::new(name, move |_| {
        let (running, met) = (Arc::clone(&running), Arc::clone(&met));
        async move {
            if running.fetch_add(1, Ordering::SeqCst) > 0 && name == "suspect" {
                met.store(true, Ordering::SeqCst);
            }
            for _ in 0..millis / 10 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                if name == "suspect" && running.load(Ordering::SeqCst) > 1 {
                    met.store(true, Ordering::SeqCst);
                }
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ActionError>(())
        }
    })
    .options(quick())
}

async fn a_suspect_runs_alone(place: Place) {
    let suspect = plant_suspect(&place, "suspect").await;
    let (running, met) = (Arc::default(), Arc::default());
    let worker = place
        .builder()
        .lease(LEASE)
        .register(slow("suspect", &running, &met, 200))
        .register(slow("other", &running, &met, 30))
        .build()
        .await
        .unwrap();
    let mut others = Vec::new();
    for _ in 0..5 {
        others.push(worker.start("other", "other", ()).await.unwrap());
    }
    worker.spawn();
    // More comes all the time: the suspect gets its turn all the same.
    while suspect.status().await.unwrap() != Status::Completed {
        others.push(worker.start("other", "other", ()).await.unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for other in others {
        other.outcome().await.unwrap();
    }
    assert!(
        !met.load(Ordering::SeqCst),
        "something ran beside the suspect"
    );
    let record = suspect.record().await.unwrap();
    assert_eq!((record.losses, check(&record)), (0, vec![]));
}

async fn what_takes_longer_than_a_lease_is_not_waited_for_at_any_price(place: Place) {
    let suspect = plant_suspect(&place, "suspect").await;
    let ledger = Ledger::new();
    let (running, met) = (Arc::default(), Arc::default());
    let worker = place
        .builder()
        .lease(LEASE)
        .register(slow("suspect", &running, &met, 50))
        .register(slow("long", &running, &met, 2500))
        .register(ledger.gives("short", 1))
        .build()
        .await
        .unwrap();
    let long = worker.start("long", "long", ()).await.unwrap();
    worker.spawn();
    until_true("the long one runs", || running.load(Ordering::SeqCst) > 0).await;
    // Five leases long others go on: the worker rests between its tries to be alone.
    let mut done_while_it_ran = 0;
    while long.status().await.unwrap() != Status::Completed {
        worker
            .start("short", "short", ())
            .await
            .unwrap()
            .outcome()
            .await
            .unwrap();
        done_while_it_ran += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(done_while_it_ran > 1, "the worker stood still");
    suspect.outcome().await.unwrap();
    assert!(
        !met.load(Ordering::SeqCst),
        "something ran beside the suspect"
    );
}

async fn a_suspect_that_only_takes_long_stops_nothing_for_ever(place: Place) {
    let suspect = plant_suspect(&place, "hangs").await;
    let ledger = Ledger::new();
    let noted = ledger.clone();
    let hangs = Method::new("hangs", move |_| {
        noted.note("hangs");
        std::future::pending::<Result<(), ActionError>>()
    });
    let worker = place
        .builder()
        .lease(Duration::from_millis(200))
        .register(hangs.options(quick()))
        .register(ledger.gives("other", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    until_true("it hangs", || ledger.count("hangs") == 1).await;
    let other = worker.start("other", "other", ()).await.unwrap();
    other.outcome().await.unwrap();
    suspect.cancel("it hangs").await.unwrap();
    assert_eq!(ledger.count("hangs"), 1);
}
