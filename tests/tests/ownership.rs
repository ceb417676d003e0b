//! Who owns a milestone when renewals fail, and when an outage ends.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{sync::Arc, time::Duration};

use milestone_runtime::{
    Method,
    action::{ActionError, Options},
    core::record::{MilestoneRecord, Status},
};
use milestone_tests::{
    flaky::Flaky,
    ledger::Ledger,
    look::{until, until_true},
    on_stores,
    place::Place,
};

on_stores!(steadily LEASE, memory, sqlite, mongodb:
    a_worker_does_not_take_what_it_holds,
    whoever_is_back_first_takes_nothing_from_the_others,
);

const LEASE: Duration = Duration::from_millis(600);

/// Renewals fail for longer than a lease, while claims do not. What the worker holds is no more due to itself than to others: it would put
/// its own healthy action in doubt.
async fn a_worker_does_not_take_what_it_holds(place: Place) {
    let flaky = Flaky::new(place.store().await);
    let ledger = Ledger::new();
    let method = Method::new("slow", {
        let ledger = ledger.clone();
        move |_| {
            ledger.note("slow");
            async {
                tokio::time::sleep(4 * LEASE).await;
                Ok::<_, ActionError>(())
            }
        }
    });
    let builder = place.builder().lease(LEASE);
    let builder = builder.store(Arc::<Flaky>::clone(&flaky));
    let runtime = builder
        .register(method.options(Options::plain()))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("slow", "slow", ()).await.unwrap();
    until_true("it runs", || ledger.count("slow") > 0).await;
    flaky.no_renewals(true);
    tokio::time::sleep(3 * LEASE).await;
    flaky.no_renewals(false);
    let record = until(&runtime, handle.id(), is_settled).await;
    assert_eq!((record.epoch, record.report.len()), (1, 1), "{record:#?}");
}

/// The database is away for longer than a lease. One worker finds it again first, while the lease of the other one looks as if it were
/// over.
async fn whoever_is_back_first_takes_nothing_from_the_others(place: Place) {
    let ledger = Ledger::new();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let flaky = Flaky::new(place.store().await);
        let ledger = ledger.clone();
        let method = Method::new("slow", move |_| {
            ledger.note("slow");
            async {
                tokio::time::sleep(5 * LEASE).await;
                Ok::<_, ActionError>(())
            }
        });
        let builder = place.builder().lease(LEASE);
        let builder = builder.store(Arc::<Flaky>::clone(&flaky));
        let builder = builder.register(method.options(Options::plain()));
        workers.push((builder.build().await.unwrap(), flaky));
    }
    let [(first, of_first), (second, of_second)] = &workers[..] else {
        unreachable!("there are two");
    };
    first.spawn();
    let handle = first.start("slow", "slow", ()).await.unwrap();
    until_true("it runs", || ledger.count("slow") > 0).await;
    second.spawn();
    // Until it would take what others have lost.
    tokio::time::sleep(LEASE * 3 / 2).await;
    of_first.away(true);
    of_second.away(true);
    tokio::time::sleep(LEASE * 3 / 2).await;
    of_second.away(false);
    tokio::time::sleep(LEASE / 3).await;
    of_first.away(false);
    let record = until(second, handle.id(), is_settled).await;
    assert_eq!(record.state, Status::Completed, "{record:#?}");
    assert_eq!((record.epoch, record.report.len()), (1, 1), "{record:#?}");
}

fn is_settled(record: &MilestoneRecord) -> bool {
    matches!(record.state, Status::Completed | Status::InDoubt)
}
