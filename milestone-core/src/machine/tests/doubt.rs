//! In doubt: a plain action began, and nobody knows whether it took effect.

use super::*;

fn resolve(action: &str, attempt: Option<i64>, applied: bool, output: impl Into<Bson>) -> Order {
    Order::Resolve {
        action: action.to_owned(),
        attempt,
        applied,
        output: output.into(),
    }
}

/// `a`, whose worker has died, then `b`.
fn in_doubt() -> Bench {
    let mut bench = Bench::new(vec![
        action("a", Mode::Plain, &[]),
        action("b", Mode::Plain, &[0]),
    ]);
    bench.begin(&["a"]);
    bench.claim();
    bench
}

#[test]
fn a_plain_action_is_not_run_again() {
    let mut bench = in_doubt();
    assert_eq!(
        (bench.status(), bench.state("a")),
        (Status::InDoubt, ActionState::InDoubt)
    );
    let settled = DateTime::from_millis(bench.now.timestamp_millis() + 30_000);
    assert_eq!(bench.record.actions[0].settle_after, Some(settled));
    bench.wait(3600);
    assert!(bench.due().is_empty() && bench.try_begin(&["a"]).is_err());
    bench.must(Event::HandBack);
    assert_eq!(
        (bench.record.next.as_ref(), bench.record.due.len()),
        (None, 0),
        "it waits for somebody's word"
    );
}

#[test]
fn applied_goes_on_with_the_output() {
    let mut bench = in_doubt();
    let answer = bench.order(resolve("a", Some(1), true, 7));
    assert_eq!(
        (answer.done, answer.message.as_str()),
        (true, "it took effect")
    );
    assert_eq!(
        (bench.record.outputs(), bench.due()),
        (bson::doc! { "a": 7 }, vec!["b".to_owned()])
    );
    bench.run(&["b"]);
    assert_eq!(
        (bench.status(), bench.record.actions[0].attempts),
        (Status::Completed, 1)
    );
}

#[test]
fn not_applied_runs_it_again() {
    let mut bench = in_doubt();
    let answer = bench.order(resolve("a", None, false, Bson::Null));
    assert_eq!(
        (answer.done, answer.message.as_str()),
        (true, "it did not take effect")
    );
    bench.run(&["a", "b"]);
    assert_eq!(
        (bench.status(), bench.record.actions[0].attempts),
        (Status::Completed, 2)
    );
}

#[test]
fn a_word_about_another_attempt_is_too_late() {
    let mut bench = in_doubt();
    for attempt in [0, 2] {
        let answer = bench.order(resolve("a", Some(attempt), true, 7));
        let expected = format!("too late: attempt {attempt} of `a` is not in doubt");
        assert_eq!((answer.done, answer.message), (false, expected));
    }
    assert!(!bench.order(resolve("b", None, true, 7)).done);
    assert_eq!(
        bench.order(resolve("z", None, true, 7)).message,
        "it has no action `z`"
    );
    assert!(bench.order(resolve("a", Some(1), true, 7)).done);
    assert!(
        !bench.order(resolve("a", Some(1), true, 8)).done,
        "the word of another worker, later"
    );
    assert_eq!(bench.record.outputs(), bson::doc! { "a": 7 });
}

#[test]
fn an_output_that_cannot_be_stored_resolves_nothing() {
    let mut bench = in_doubt();
    bench.limits = Limits::new().output(100);
    let answer = bench.order(resolve("a", None, true, "x".repeat(100)));
    assert_eq!(
        (answer.done, bench.state("a")),
        (false, ActionState::InDoubt)
    );
    assert!(
        answer
            .message
            .contains("the output of `a` would take 105 bytes"),
        "{}",
        answer.message
    );
}

#[test]
fn other_branches_go_on() {
    let plain = Mode::Plain;
    let actions = vec![
        action("a", plain, &[]),
        action("b", plain, &[]),
        action("c", plain, &[1]),
        action("d", plain, &[0, 2]),
    ];
    let mut bench = Bench::new(actions);
    bench.begin(&["a", "b"]);
    bench.fail("a", of_kind(AttemptKind::Timeout));
    assert_eq!(bench.status(), Status::Running);
    bench.succeed("b", 1);
    bench.run(&["c"]);
    assert_eq!(
        (bench.status(), bench.state("d")),
        (Status::InDoubt, ActionState::Pending)
    );
    assert!(bench.order(resolve("a", None, true, 1)).done);
    bench.run(&["d"]);
    assert_eq!(bench.status(), Status::Completed);
}

#[test]
fn a_failure_beside_it_waits_for_the_word() {
    let mut bench = Bench::new(vec![
        action("a", Mode::Plain, &[]),
        action("b", Mode::Plain, &[]),
    ]);
    bench.begin(&["a", "b"]);
    bench.fail("a", of_kind(AttemptKind::Panic));
    bench.fail("b", fatal());
    assert_eq!(bench.status(), Status::InDoubt);
    assert!(bench.order(resolve("a", None, true, 1)).done);
    assert_eq!(bench.status(), Status::Failed);
}

#[test]
fn a_refused_output_of_a_plain_action_is_in_doubt_after_a_retry() {
    let mut bench = Bench::with_limits(
        vec![action("a", Mode::Plain, &[])],
        Limits::new().output(100),
    );
    bench.begin(&["a"]);
    bench.succeed("a", "x".repeat(100));
    assert_eq!(bench.status(), Status::Failed);
    assert!(bench.order(Order::Retry).done);
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::InDoubt, vec![]),
        "it took effect, so it must not run again"
    );
    assert!(bench.order(resolve("a", None, true, "shorter")).done);
    assert_eq!(bench.status(), Status::Completed);
}

#[test]
fn a_refused_output_of_a_repeatable_action_runs_again_after_a_retry() {
    let mut bench = Bench::with_limits(
        vec![action("a", Mode::Idempotent, &[])],
        Limits::new().output(100),
    );
    bench.begin(&["a"]);
    bench.succeed("a", "x".repeat(100));
    assert!(bench.order(Order::Retry).done);
    bench.run(&["a"]);
    assert_eq!(bench.status(), Status::Completed);
}
