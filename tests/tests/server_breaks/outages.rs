//! F27: the server is down for a while at each of start, claim, commit, renewal and shutdown. `MILESTONE_OUTAGE` says for how many seconds;
//! `cargo xtask torture` has it down for 5 and for 60.

use std::{
    env,
    time::{Duration, Instant},
};

use milestone_runtime::core::record::AttemptKind;
use milestone_tests::{
    journal::{self, What},
    load::{Kind, paced, slow_at_first},
    look::until_true,
    steady::steadily,
};

use super::bench::{Bench, LEASE, LONG_LEASE, Started, start_many};

/// How long the server is down, at least.
fn outage_of(least: Duration) -> Duration {
    let seconds = env::var("MILESTONE_OUTAGE").ok();
    let seconds = seconds.map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    seconds.map_or(least, |seconds| seconds.max(least))
}

/// Longer than other tests may take, if the outage is.
fn run(body: impl Future<Output = ()>) {
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        tokio::time::timeout(outage_of(LEASE) + Duration::from_mins(5), body)
            .await
            .expect("the test hangs");
    });
}

async fn down(bench: &mut Bench) {
    bench.server.kill();
    // Longer than a lease.
    tokio::time::sleep(outage_of(bench.lease * 5 / 4)).await;
    bench.server.start_again().await;
}

fn begun(bench: &Bench) -> usize {
    let entries = journal::read(&bench.journal());
    let begun = entries.iter().filter(|entry| entry.what == What::Begun);
    begun.count()
}

#[test]
fn f27_down_at_a_start() {
    run(async {
        let mut bench = Bench::new().await;
        let worker = bench.worker().await;
        let starting = tokio::spawn({
            let worker = worker.clone();
            async move {
                let mut starts = Vec::new();
                for number in 0..20 {
                    let worker = worker.clone();
                    let kind = Kind::Retry;
                    starts.push(async move {
                        let parameters = paced(Duration::from_millis(10));
                        loop {
                            let start = worker.start(kind.name(), kind.graph(), &parameters);
                            // With an id, a start that has failed is made again without harm.
                            if let Ok(handle) = start.id(format!("m{number}")).await {
                                return Started { kind, handle };
                            }
                        }
                    });
                }
                // Some are on their way when the server goes, some come later.
                futures_util::future::join_all(starts).await
            }
        });
        down(&mut bench).await;
        for started in starting.await.unwrap() {
            bench.ends_well(&started).await;
        }
    });
}

#[test]
fn f27_down_at_a_claim() {
    run(async {
        let mut bench = Bench::new().await;
        let client = bench.builder(&bench.uri()).client().build().await.unwrap();
        let started = start_many(&client, "m", &[Kind::Charge, Kind::Retry], 20).await;
        let worker = bench.builder(&bench.uri()).build().await.unwrap();
        bench.server.kill();
        worker.spawn();
        tokio::time::sleep(outage_of(2 * LEASE)).await;
        assert_eq!(begun(&bench), 0);
        bench.server.start_again().await;
        let back = Instant::now();
        until_true("the first claim", || begun(&bench) > 0).await;
        assert!(
            back.elapsed() < Duration::from_secs(5),
            "{:?}",
            back.elapsed()
        );
        for started in &started {
            bench.ends_well(started).await;
        }
    });
}

/// Bodies end while nobody can be told. What they gave is stored later; none of them runs again, though another worker stands by.
#[test]
fn f27_down_at_a_commit() {
    run(steadily(LONG_LEASE, async || {
        let mut bench = Bench::with_lease(LONG_LEASE).await;
        let (worker, _other) = (bench.worker().await, bench.worker().await);
        let started = start_many(&worker, "m", &[Kind::Charge, Kind::Fan], 20).await;
        until_true("they run", || begun(&bench) >= 20).await;
        down(&mut bench).await;
        for started in &started {
            let record = bench.ends_well(started).await;
            assert!(
                record.report.iter().all(|attempt| attempt.number == 1),
                "{record:#?}"
            );
        }
    }));
}

/// An action that runs all the time keeps its milestone, and nobody else takes it.
#[test]
fn f27_down_at_a_renewal() {
    run(steadily(LONG_LEASE, async || {
        let mut bench = Bench::with_lease(LONG_LEASE).await;
        let (worker, _other) = (bench.worker().await, bench.worker().await);
        let long = outage_of(LONG_LEASE) + Duration::from_mins(1);
        let mut started = Vec::new();
        for (number, kind) in [Kind::Charge, Kind::Fan].into_iter().enumerate() {
            let parameters = slow_at_first(long, Duration::from_millis(10));
            let start = worker.start(kind.name(), kind.graph(), parameters);
            let handle = start.id(format!("m{number}")).await.unwrap();
            started.push(Started { kind, handle });
        }
        until_true("they run", || begun(&bench) >= 2).await;
        down(&mut bench).await;
        // The other one takes what is over one lease after the outage.
        tokio::time::sleep(LONG_LEASE * 5 / 4).await;
        for started in &started {
            let record = started.handle.record().await.unwrap();
            assert_eq!((record.epoch, record.losses), (1, 0), "{record:#?}");
        }
    }));
}

/// The worker comes to its end though it can tell nobody, and another one goes on.
#[test]
fn f27_down_at_a_shutdown() {
    run(async {
        let mut bench = Bench::new().await;
        let (worker, other) = (
            bench.worker().await,
            bench.builder(&bench.uri()).build().await.unwrap(),
        );
        let started = start_many(&other, "m", &[Kind::Retry, Kind::Fan], 20).await;
        until_true("they run", || begun(&bench) >= 20).await;
        bench.server.kill();
        let began = Instant::now();
        worker.shutdown_within(Duration::from_millis(100)).await;
        // The grace period, and what a call takes that is on its way; the URI says 300 ms.
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        drop(worker);
        tokio::time::sleep(outage_of(2 * LEASE)).await;
        bench.server.start_again().await;
        let (back, before) = (Instant::now(), begun(&bench));
        other.spawn();
        until_true("the first claim", || begun(&bench) > before).await;
        // What nobody could hand back waits for its lease to end, and for one lease after the start of whoever takes it.
        assert!(
            back.elapsed() < Duration::from_secs(5) + 2 * LEASE,
            "{:?}",
            back.elapsed()
        );
        for started in &started {
            let record = bench.ends_well(started).await;
            let kinds: Vec<_> = record
                .report
                .iter()
                .filter_map(|attempt| attempt.kind)
                .collect();
            let expected = [AttemptKind::Abandoned, AttemptKind::Cancelled];
            assert!(
                kinds.iter().all(|kind| expected.contains(kind)),
                "{kinds:?}"
            );
        }
    });
}
