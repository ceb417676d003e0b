//! Cases of MongoMilestone that the machine alone decides.

use super::*;

/// The outcomes of an action's attempts, newest first.
fn successes(bench: &Bench, name: &str) -> Vec<Option<bool>> {
    let attempts = bench.record.report.iter();
    attempts
        .filter(|attempt| attempt.action == name)
        .map(|attempt| attempt.success)
        .collect()
}

#[test]
fn s08_the_last_sees_parameters_and_all_outputs() {
    let plain = Mode::Plain;
    let actions = vec![
        action("do-debit", plain, &[]),
        action("do-credit", plain, &[0]),
        action("confirm-transfer", plain, &[0]),
        action("update-balances", plain, &[1, 2]),
    ];
    let mut bench = Bench::new(actions);
    bench.run(&[
        "do-debit",
        "confirm-transfer",
        "do-credit",
        "update-balances",
    ]);
    assert_eq!(bench.status(), Status::Completed);
    let expected = bson::doc! {
        "milestone": null, "do-debit": "do-debit", "do-credit": "do-credit", "confirm-transfer": "confirm-transfer",
    };
    assert_eq!(bench.record.input(3), expected);
    // Siblings do not see each other.
    assert_eq!(
        bench.record.input(2),
        bson::doc! { "milestone": null, "do-debit": "do-debit" }
    );
    assert_eq!(bench.record.report.len(), 4);
    assert!(
        bench
            .record
            .report
            .iter()
            .all(|attempt| attempt.success == Some(true))
    );
}

#[test]
fn s12_nothing_is_an_output_too() {
    let mut bench = Bench::new(vec![action("a", Mode::Plain, &[])]);
    bench.begin(&["a"]);
    bench.succeed("a", Bson::Null);
    assert_eq!(bench.status(), Status::Completed);
    assert_eq!(bench.record.outputs(), bson::doc! { "a": null });
}

#[test]
fn s13_a_failed_attempt_is_told_and_next_does_not_run() {
    let mut bench = Bench::new(vec![
        action("a", Mode::Idempotent, &[]),
        action("b", Mode::Plain, &[0]),
    ]);
    bench.begin(&["a"]);
    bench.fail("a", error());
    let attempt = &bench.record.report[0];
    assert_eq!(
        (attempt.success, attempt.end_date),
        (Some(false), bench.now)
    );
    assert_eq!(
        attempt.error.as_ref().map(|error| error.message.as_str()),
        Some("no")
    );
    assert_eq!(
        (bench.status(), bench.state("b")),
        (Status::Waiting, ActionState::Pending)
    );
}

#[test]
fn s14_fails_twice_succeeds_the_third_time() {
    let repeat = Mode::Idempotent;
    let mut bench = Bench::new(vec![
        action("a", repeat, &[]),
        action("b", repeat, &[0]),
        action("c", repeat, &[1]),
    ]);
    bench.run(&["a"]);
    for wait in [1, 2] {
        bench.begin(&["b"]);
        bench.fail("b", error());
        bench.wait(wait);
    }
    assert_eq!(bench.state("c"), ActionState::Pending);
    bench.run(&["b", "c"]);
    assert_eq!(
        successes(&bench, "b"),
        [Some(true), Some(false), Some(false)]
    );
    assert_eq!(successes(&bench, "a"), [Some(true)]);
    assert_eq!(bench.status(), Status::Completed);
}

#[test]
fn s15_the_last_of_three_fails_once() {
    let repeat = Mode::Idempotent;
    let mut bench = Bench::new(vec![
        action("a", repeat, &[]),
        action("b", repeat, &[0]),
        action("c", repeat, &[1]),
    ]);
    bench.run(&["a", "b"]);
    bench.begin(&["c"]);
    bench.fail("c", error());
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::Waiting, vec!["c".to_owned()])
    );
    bench.wait(1);
    bench.run(&["c"]);
    assert_eq!(bench.status(), Status::Completed);
    let attempts = bench.record.actions.iter().map(|action| action.attempts);
    assert_eq!(attempts.collect::<Vec<_>>(), [1, 1, 2]);
}

#[test]
fn s16_one_sibling_fails_while_the_other_is_slow() {
    let plain = Mode::Plain;
    let actions = || {
        vec![
            action("a", plain, &[]),
            action("b", plain, &[0]),
            action("c", plain, &[0]),
            action("d", plain, &[1, 2]),
        ]
    };
    let mut bench = Bench::new(actions());
    bench.run(&["a"]);
    bench.begin(&["b", "c"]);
    bench.fail("b", fatal());
    assert_eq!(
        (bench.status(), bench.state("d")),
        (Status::Running, ActionState::Skipped)
    );
    bench.succeed("c", 7);
    assert_eq!(bench.status(), Status::Failed);
    assert_eq!(bench.record.outputs(), bson::doc! { "a": "a", "c": 7 });
    // And after the retry it is still there, and not run again.
    assert!(bench.order(Order::Retry).done);
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::Running, vec!["b".to_owned()])
    );
    bench.run(&["b", "d"]);
    assert_eq!(bench.status(), Status::Completed);
    assert_eq!(bench.record.action("c").unwrap().1.attempts, 1);
}

#[test]
fn s17_a_panic_is_a_failed_attempt() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    bench.begin(&["a"]);
    bench.fail("a", of_kind(AttemptKind::Panic));
    let attempt = &bench.record.report[0];
    assert_eq!(
        (attempt.success, attempt.kind),
        (Some(false), Some(AttemptKind::Panic))
    );
    assert_eq!(bench.state("a"), ActionState::Backoff);
}

#[test]
fn s19_an_abandoned_attempt_stays_in_the_report() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    bench.begin(&["a"]);
    bench.claim();
    assert_eq!(
        (bench.state("a"), bench.record.losses),
        (ActionState::Ready, 1)
    );
    bench.run(&["a"]);
    let kinds = bench
        .record
        .report
        .iter()
        .map(|attempt| (attempt.number, attempt.success, attempt.kind));
    let expected = [
        (2, Some(true), None),
        (1, None, Some(AttemptKind::Abandoned)),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    assert_eq!(bench.record.losses, 0);
}
