//! How attempts begin, end and are repeated.

use super::*;

#[test]
fn what_is_not_due_does_not_begin() {
    let mut bench = Bench::new(vec![
        action("a", Mode::Plain, &[]),
        action("b", Mode::Plain, &[0]),
    ]);
    let not_due = |name: &str| {
        Err(TransitionError::NotDue {
            action: name.to_owned(),
        })
    };
    assert_eq!(bench.try_begin(&["b"]), not_due("b"));
    assert_eq!(bench.try_begin(&["a", "b"]), not_due("b"));
    assert_eq!(bench.try_begin(&["a", "a"]), not_due("a"));
    assert_eq!(
        bench.state("a"),
        ActionState::Ready,
        "an error changes nothing"
    );
    bench.begin(&["a"]);
    assert_eq!(bench.try_begin(&["a"]), not_due("a"));
    let tasks = vec![Task::to_do(7)];
    let begin = Event::Begin {
        tasks,
        worker: "w".to_owned(),
    };
    assert_eq!(
        bench.event(begin),
        Err(TransitionError::NoAction { index: 7 })
    );
    bench.succeed("a", 1);
    assert_eq!(bench.try_begin(&["a"]), not_due("a"));
    bench.begin(&["b"]);
}

/// F18: a second write for an attempt that has ended is refused, and so is one for an attempt of an earlier owner.
#[test]
fn f18_only_the_attempt_that_runs_can_end() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    bench.begin(&["a"]);
    bench.claim();
    bench.begin(&["a"]);
    for number in [-1, 0, 1, 3] {
        let task = bench.task("a");
        let error = TransitionError::NotRunning {
            action: "a".to_owned(),
            number,
        };
        assert_eq!(
            bench.event(Event::Succeeded {
                task,
                number,
                output: 1.into()
            }),
            Err(error.clone())
        );
        assert_eq!(
            bench.event(Event::Failed {
                task,
                number,
                failed: fatal()
            }),
            Err(error)
        );
    }
    bench.succeed("a", 1);
    assert_eq!(bench.status(), Status::Completed);
    let again = Event::Succeeded {
        task: Task::to_do(0),
        number: 2,
        output: 2.into(),
    };
    assert_eq!(bench.event(again), Err(TransitionError::NotHeld));
}

#[test]
fn backoff_grows_and_starts_again_after_a_success_of_another() {
    let repeat = Mode::Idempotent;
    let mut bench = Bench::new(vec![action("a", repeat, &[]), action("b", repeat, &[0])]);
    for (failures, wait) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        bench.begin(&["a"]);
        bench.fail("a", error());
        let action = &bench.record.actions[0];
        let at = DateTime::from_millis(bench.now.timestamp_millis() + wait * 1000);
        assert_eq!(
            (action.state, action.failures, action.at),
            (ActionState::Backoff, failures, Some(at))
        );
        bench.wait(wait - 1);
        assert!(bench.try_begin(&["a"]).is_err(), "a second too early");
        bench.wait(1);
    }
    bench.run(&["a"]);
    assert_eq!(
        (bench.record.actions[0].failures, bench.record.actions[0].at),
        (0, None)
    );
    bench.begin(&["b"]);
    bench.fail("b", error());
    assert_eq!(bench.record.actions[1].failures, 1);
}

#[test]
fn the_error_may_ask_for_its_own_delay() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    bench.begin(&["a"]);
    bench.fail(
        "a",
        Failed {
            retry_after: Some(Duration::from_mins(2)),
            ..error()
        },
    );
    bench.wait(119);
    assert!(bench.try_begin(&["a"]).is_err());
    bench.wait(1);
    bench.begin(&["a"]);
    bench.fail(
        "a",
        Failed {
            retry_after: Some(Duration::MAX),
            ..error()
        },
    );
    let at = bench.record.actions[0].at.unwrap();
    assert_eq!(
        at.try_to_rfc3339_string().unwrap(),
        "9999-12-31T23:59:59.999Z"
    );
}

#[test]
fn a_retry_is_never_at_once() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    bench.begin(&["a"]);
    bench.fail(
        "a",
        Failed {
            retry_after: Some(Duration::ZERO),
            ..error()
        },
    );
    assert_eq!(bench.status(), Status::Waiting);
    assert!(bench.try_begin(&["a"]).is_err());
}

#[test]
fn retries_are_used_up() {
    let mut bench = Bench::new(vec![action("a", Mode::Plain, &[])]);
    let twice = || Failed {
        policy: RetryPolicy::new().max(2),
        ..error()
    };
    bench.begin(&["a"]);
    bench.fail("a", twice());
    assert_eq!(bench.status(), Status::Waiting);
    bench.wait(1);
    bench.begin(&["a"]);
    bench.fail(
        "a",
        Failed {
            retry_after: Some(Duration::from_secs(1)),
            ..twice()
        },
    );
    assert_eq!(bench.status(), Status::Failed);
}

#[test]
fn each_kind_of_end_by_mode() {
    use ActionState::{Backoff, Failed as Final, InDoubt, Ready};
    use AttemptKind::{Abandoned, Cancelled, Panic, Refused, Timeout, Unclear};
    let cases = [
        (None, Backoff, Backoff),
        (Some(Timeout), InDoubt, Backoff),
        (Some(Panic), InDoubt, Backoff),
        (Some(Unclear), InDoubt, Backoff),
        (Some(Cancelled), InDoubt, Ready),
        (Some(Abandoned), InDoubt, Ready),
        (Some(Refused), Final, Final),
    ];
    for (kind, plain, repeatable) in cases {
        for (mode, state) in [
            (Mode::Plain, plain),
            (Mode::Idempotent, repeatable),
            (Mode::Transactional, repeatable),
        ] {
            let mut bench = Bench::new(vec![action("a", mode, &[])]);
            bench.begin(&["a"]);
            bench.fail("a", Failed { kind, ..error() });
            assert_eq!(bench.state("a"), state, "{kind:?} of {mode:?}");
            let success = if state == InDoubt { None } else { Some(false) };
            assert_eq!(bench.record.report[0].success, success);
            // A worker that shuts down or dies is no failure of the action.
            let counted = i64::from(!matches!(kind, Some(Cancelled | Abandoned)));
            assert_eq!(
                bench.record.actions[0].failures, counted,
                "{kind:?} of {mode:?}"
            );
        }
    }
}

#[test]
fn an_output_that_is_too_large_counts_as_applied() {
    let mut bench = Bench::with_limits(
        vec![action("a", Mode::Idempotent, &[])],
        Limits::new().output(100),
    );
    bench.begin(&["a"]);
    bench.succeed("a", "x".repeat(100));
    let attempt = &bench.record.report[0];
    assert_eq!(
        (attempt.success, attempt.kind),
        (Some(false), Some(AttemptKind::Refused))
    );
    let message = &attempt.error.as_ref().unwrap().message;
    let expected = "the action took effect, but the output of `a` would take 105 bytes, the limit `output` is 100; it is not run again";
    assert_eq!(message, expected);
    assert_eq!(
        (bench.status(), bench.record.outputs()),
        (Status::Failed, Document::new())
    );
}

#[test]
fn a_claim_counts_losses_in_a_row_and_forgets_them() {
    let mut bench = Bench::new(vec![
        action("a", Mode::Idempotent, &[]),
        action("b", Mode::Plain, &[0]),
    ]);
    for losses in 1..4 {
        bench.begin(&["a"]);
        bench.claim();
        assert_eq!(bench.record.losses, losses);
    }
    bench.claim();
    assert_eq!(bench.record.losses, 3, "nothing ran");
    bench.begin(&["a"]);
    bench.fail("a", error());
    assert_eq!(bench.record.losses, 0);
}

#[test]
fn a_worker_does_not_take_over_its_own_attempts() {
    let mut bench = Bench::new(vec![action("a", Mode::Plain, &[])]);
    bench.begin(&["a"]);
    bench.must(Event::TakenOver { settle: SETTLE });
    assert_eq!(bench.state("a"), ActionState::Running);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let mut bench = Bench::new(vec![action("a", Mode::Plain, &[])]);
    bench.wait(-500);
    bench.begin(&["a"]);
    bench.wait(-500);
    bench.succeed("a", 1);
    assert_eq!(bench.record.begin_date, Some(bench.record.created_at));
}
