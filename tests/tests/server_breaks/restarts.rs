//! The server is killed in the middle of load and started again.

use std::time::Duration;

use milestone_runtime::{CommandError, Filter, core::record::Status};
use milestone_tests::{
    journal::{self, What},
    load::Kind,
    place::run_async,
    steady::steadily,
};

use super::bench::{Bench, LEASE, LONG_LEASE, Started, count, start_many};

/// Twice in the middle of 200 milestones. Two workers live through it, so nothing of theirs is in doubt or runs again: a plain action
/// begins once, and no attempt is abandoned (P7).
#[test]
fn f28_the_server_restarts_while_200_milestones_run() {
    run_async(steadily(LONG_LEASE, async || {
        let mut bench = Bench::with_lease(LONG_LEASE).await;
        let (one, _two) = (bench.worker().await, bench.worker().await);
        let kinds = [Kind::Retry, Kind::Saga, Kind::Charge, Kind::Fan];
        let started = start_many(&one, "m", &kinds, 200).await;
        for done in [1, 60] {
            while ended(&bench) < done {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            bench.server.kill();
            bench.server.start_again().await;
        }
        let unfinished = one.count(Filter::unfinished()).await.ok();
        assert!(
            unfinished.is_none_or(|left| left > 0),
            "it was over before it began"
        );
        for started in &started {
            let record = bench.ends_well(started).await;
            assert_eq!(record.losses, 0);
            let odd = record.report.iter().find(|attempt| attempt.kind.is_some());
            assert_eq!(odd, None, "{record:#?}");
        }
    }));
}

/// How many last actions have ended, as the journal has it: the server may be away.
fn ended(bench: &Bench) -> usize {
    let last = ["receipt", "store", "collect", "untrain"];
    let entries = journal::read(&bench.journal());
    let ended = entries
        .iter()
        .filter(|entry| entry.what == What::Ended && last.contains(&&*entry.action));
    ended.count()
}

/// One worker shuts down and hands back, the other one takes over, and the database is killed and comes back meanwhile, three times.
/// What was cut off in the middle of a plain action is in doubt, and is resolved by whoever looks at its effect.
#[test]
fn f14_handed_back_and_taken_over_while_the_database_restarts() {
    run_async(async {
        let mut bench = Bench::new().await;
        let mut keeper = bench.worker().await;
        let mut started = Vec::new();
        for round in 0..3 {
            let other = bench.worker().await;
            let kinds = [Kind::Retry, Kind::Charge, Kind::Fan];
            started.extend(start_many(&keeper, &format!("r{round}"), &kinds, 30).await);
            tokio::time::sleep(Duration::from_millis(60)).await;
            // Shut down with almost no grace, while the server goes.
            let stopping = tokio::spawn(async move {
                keeper.shutdown_within(Duration::from_millis(20)).await;
            });
            bench.server.kill();
            tokio::time::sleep(LEASE / 4).await;
            bench.server.start_again().await;
            stopping.await.unwrap();
            keeper = other;
        }
        let allowed = resolve_all(&bench, &started).await;
        for (started, allowed) in started.iter().zip(allowed) {
            bench.ends_with(started, allowed).await;
        }
        assert_eq!(count(&keeper, Status::Completed).await, Some(90));
    });
}

/// Resolves what is in doubt until nothing is, and says how often the plain action of each milestone may have begun.
async fn resolve_all(bench: &Bench, started: &[Started]) -> Vec<usize> {
    let mut allowed = vec![1; started.len()];
    for (started, allowed) in started.iter().zip(&mut allowed) {
        loop {
            // The driver may not have found the server again.
            let state = started.handle.status().await.unwrap_or(Status::Running);
            if state.is_terminal() {
                break;
            }
            if state == Status::InDoubt {
                let id = started.handle.id().to_string();
                let entries = journal::read(&bench.journal());
                let effect = entries.iter().find(|entry| {
                    entry.milestone == id && entry.action == "charge" && entry.what == What::Ended
                });
                let answer = if let Some(entry) = effect {
                    started.handle.resolve_applied("charge", &entry.mark).await
                } else {
                    *allowed += 1;
                    started.handle.resolve_not_applied("charge").await
                };
                // The late result of the attempt itself may have come before.
                if let Err(CommandError::State { .. } | CommandError::Refused { .. }) = answer {
                    *allowed -= usize::from(effect.is_none());
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    allowed
}
