//! A milestone that kills its workers (F13).

use super::*;
use crate::{lease::PARKED_FROM, verdict::Verdict};

/// Its worker is lost in the middle of an attempt, that many times.
fn lose(bench: &mut Bench, times: i64) {
    for _ in 0..times {
        bench.begin(&["a"]);
        bench.claim();
    }
}

#[test]
fn it_is_suspected_then_parked() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    lose(&mut bench, 1);
    assert!(!bench.record.is_suspect());
    lose(&mut bench, 1);
    assert!(bench.record.is_suspect() && bench.record.hold.is_none());
    lose(&mut bench, 4);
    assert_eq!((bench.record.losses, &bench.record.hold), (6, &None));
    lose(&mut bench, 1);
    let hold = bench.record.hold.clone().unwrap();
    assert_eq!(hold.by, "milestone");
    assert!(
        hold.reason
            .starts_with("parked: 7 workers in a row were lost"),
        "{}",
        hold.reason
    );
    assert!(bench.due().is_empty() && bench.try_begin(&["a"]).is_err());
    bench.must(Event::HandBack);
    assert_eq!(bench.record.next, None, "no worker looks at it any more");
    assert_eq!(
        bench.record.report.len(),
        7,
        "each loss is an attempt that was abandoned"
    );
}

#[test]
fn resumed_it_gets_as_many_tries_again() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    lose(&mut bench, PARKED_FROM);
    assert!(bench.order(Order::Resume).done);
    assert!(bench.record.is_suspect());
    lose(&mut bench, 4);
    assert_eq!(bench.record.hold, None);
    lose(&mut bench, 1);
    assert!(bench.record.hold.is_some());
}

#[test]
fn an_attempt_that_ends_clears_it() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    lose(&mut bench, 6);
    bench.begin(&["a"]);
    bench.fail("a", error());
    assert!(!bench.record.is_suspect());
    bench.wait(10);
    lose(&mut bench, 1);
    assert_eq!((bench.record.losses, &bench.record.hold), (1, &None));
}

#[test]
fn a_lease_that_ends_while_nothing_runs_is_no_loss() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    for _ in 0..10 {
        bench.claim();
    }
    assert_eq!((bench.record.losses, &bench.record.hold), (0, &None));
}

#[test]
fn a_verify_between_two_losses_does_not_clear_it() {
    let mut a = action("a", Mode::Plain, &[]);
    a.verify = Some("verify-a".to_owned());
    let mut bench = Bench::new(vec![a]);
    let verdict =
        |verdict: Verdict<Bson>| bson::serialize_to_bson(&verdict).expect("it can be stored");
    for losses in 1..PARKED_FROM {
        lose(&mut bench, 1);
        assert_eq!((bench.record.losses, &bench.record.hold), (losses, &None));
        bench.wait(30);
        bench.begin(&["verify-a"]);
        bench.fail("verify-a", error());
        bench.wait(10);
        bench.begin(&["verify-a"]);
        bench.succeed("verify-a", verdict(Verdict::NotApplied));
    }
    lose(&mut bench, 1);
    assert!(bench.record.hold.is_some(), "it kills whoever runs it");
    assert!(bench.order(Order::Resume).done);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    bench.succeed("verify-a", verdict(Verdict::Applied(1.into())));
    assert_eq!(
        (bench.status(), bench.record.losses),
        (Status::Completed, 0)
    );
}
