//! Undoing: in reverse order of the graph, what has begun and nothing else.

use super::*;

/// a -> (b, c) -> d, all of which can be undone.
fn diamond(mode: Mode) -> Bench {
    Bench::new(vec![
        undoable("a", mode, &[]),
        undoable("b", mode, &[0]),
        undoable("c", mode, &[0]),
        undoable("d", mode, &[1, 2]),
    ])
}

#[test]
fn a_diamond_is_undone_in_reverse() {
    let mut bench = diamond(Mode::Idempotent);
    bench.run(&["a", "b", "c"]);
    bench.begin(&["d"]);
    bench.fail("d", fatal());
    assert_eq!(bench.status(), Status::Undoing);
    assert_eq!(
        bench
            .record
            .unwind
            .as_ref()
            .map(|unwind| unwind.reason.as_str()),
        Some("`d` failed")
    );
    // The failed one too: its error may have followed its effect.
    assert_eq!(bench.due(), ["undo-d"]);
    assert!(bench.try_begin(&["undo-a"]).is_err() && bench.try_begin(&["undo-b"]).is_err());
    bench.run(&["undo-d"]);
    assert_eq!(bench.due(), ["undo-b", "undo-c"]);
    bench.begin(&["undo-b", "undo-c"]);
    bench.succeed("undo-c", 1);
    assert_eq!(bench.due(), Vec::<String>::new(), "`b` is not undone yet");
    bench.succeed("undo-b", 1);
    bench.run(&["undo-a"]);
    assert_eq!(
        (bench.status(), bench.record.lease.as_ref()),
        (Status::Undone, None)
    );
    let names = bench
        .record
        .report
        .iter()
        .rev()
        .map(|attempt| (attempt.action.as_str(), attempt.phase == Phase::Undo));
    let expected = [
        ("a", false),
        ("b", false),
        ("c", false),
        ("d", false),
        ("d", true),
        ("c", true),
        ("b", true),
        ("a", true),
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
}

#[test]
fn what_has_not_begun_is_skipped_and_not_undone() {
    let mut bench = diamond(Mode::Idempotent);
    bench.run(&["a"]);
    bench.begin(&["b"]);
    bench.fail("b", fatal());
    assert_eq!(
        (bench.state("c"), bench.state("d")),
        (ActionState::Skipped, ActionState::Skipped)
    );
    bench.run(&["undo-b", "undo-a"]);
    assert_eq!(
        (bench.status(), bench.undo("c"), bench.undo("d")),
        (Status::Undone, UndoState::None, UndoState::None)
    );
}

#[test]
fn running_siblings_end_first_and_keep_their_outputs() {
    let mut bench = diamond(Mode::Idempotent);
    bench.run(&["a"]);
    bench.begin(&["b", "c"]);
    bench.fail("b", fatal());
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::Undoing, vec!["undo-b".to_owned()]),
        "`a` waits for `c`"
    );
    bench.succeed("c", "late");
    assert_eq!(
        bench.record.action("c").unwrap().1.output,
        Some("late".into())
    );
    assert_eq!(bench.due(), ["undo-b", "undo-c"]);
    bench.run(&["undo-b", "undo-c", "undo-a"]);
    assert_eq!(bench.status(), Status::Undone);
}

#[test]
fn a_sibling_that_fails_while_undoing_is_not_retried_but_undone() {
    let mut bench = diamond(Mode::Idempotent);
    bench.run(&["a"]);
    bench.begin(&["b", "c"]);
    bench.fail("b", fatal());
    bench.fail("c", error());
    assert_eq!(bench.state("c"), ActionState::Failed);
    assert_eq!(bench.due(), ["undo-b", "undo-c"]);
}

#[test]
fn an_undo_is_retried_without_end() {
    let mut bench = diamond(Mode::Idempotent);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    for number in 1..20 {
        bench.begin(&["undo-a"]);
        let kind = [None, Some(AttemptKind::Panic), Some(AttemptKind::Timeout)][number % 3];
        bench.fail(
            "undo-a",
            Failed {
                kind,
                policy: RetryPolicy::never(),
                ..error()
            },
        );
        assert_eq!(bench.undo("a"), UndoState::None);
        bench.wait(300);
    }
    bench.run(&["undo-a"]);
    assert_eq!(bench.status(), Status::Undone);
}

#[test]
fn an_undo_goes_on_after_its_worker_has_died() {
    let mut bench = diamond(Mode::Plain);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    bench.begin(&["undo-a"]);
    bench.claim();
    assert_eq!((bench.undo("a"), bench.record.losses), (UndoState::None, 1));
    assert_eq!(bench.record.report[0].kind, Some(AttemptKind::Abandoned));
    bench.run(&["undo-a"]);
    assert_eq!(bench.status(), Status::Undone);
}

#[test]
fn a_fatal_undo_waits_for_an_operator() {
    let mut bench = diamond(Mode::Idempotent);
    bench.run(&["a"]);
    bench.begin(&["b"]);
    bench.fail("b", fatal());
    bench.begin(&["undo-b"]);
    bench.fail("undo-b", fatal());
    assert_eq!((bench.undo("b"), bench.due()), (UndoState::Failed, vec![]));
    assert_eq!(bench.status(), Status::Undoing);
    // It may be tried again once the cause is mended ..
    assert!(bench.order(Order::Retry).done);
    bench.begin(&["undo-b"]);
    bench.fail("undo-b", fatal());
    // .. or waived.
    assert!(
        bench
            .order(Order::Waive {
                action: "b".to_owned()
            })
            .done
    );
    assert_eq!(
        (bench.undo("b"), bench.due()),
        (UndoState::Waived, vec!["undo-a".to_owned()])
    );
    bench.run(&["undo-a"]);
    assert_eq!(bench.status(), Status::Undone);
}

#[test]
fn an_undo_that_struggles_may_be_waived_but_not_one_that_has_not_failed() {
    let mut bench = diamond(Mode::Idempotent);
    bench.run(&["a"]);
    bench.begin(&["b"]);
    bench.fail("b", fatal());
    let waive = || Order::Waive {
        action: "b".to_owned(),
    };
    assert_eq!(
        bench.order(waive()).message,
        "the undo of `b` has not failed"
    );
    bench.begin(&["undo-b"]);
    assert!(!bench.order(waive()).done, "it runs");
    bench.fail("undo-b", error());
    assert!(bench.order(waive()).done);
    assert_eq!(bench.due(), ["undo-a"]);
}

#[test]
fn one_in_doubt_with_an_undo_is_undone_once_it_is_settled() {
    let mut bench = diamond(Mode::Plain);
    bench.run(&["a"]);
    bench.begin(&["b", "c"]);
    bench.fail("b", of_kind(AttemptKind::Timeout));
    bench.fail("c", fatal());
    assert_eq!(
        (bench.status(), bench.state("b")),
        (Status::Undoing, ActionState::InDoubt)
    );
    assert_eq!(bench.due(), ["undo-b", "undo-c"]);
    bench.wait(29);
    assert!(
        bench.try_begin(&["undo-b"]).is_err(),
        "the old attempt may still take effect"
    );
    bench.wait(1);
    bench.run(&["undo-b"]);
    let late = Order::Resolve {
        action: "b".to_owned(),
        attempt: Some(1),
        applied: true,
        output: 1.into(),
    };
    assert_eq!(bench.order(late).message, "too late: `b` is undone");
    bench.run(&["undo-c", "undo-a"]);
    assert_eq!(bench.status(), Status::Undone);
}

#[test]
fn one_in_doubt_without_an_undo_is_resolved_before_anything_is_undone_past_it() {
    let plain = Mode::Plain;
    for applied in [true, false] {
        let mut bench = Bench::new(vec![
            undoable("a", plain, &[]),
            action("b", plain, &[0]),
            action("c", plain, &[0]),
        ]);
        bench.run(&["a"]);
        bench.begin(&["b", "c"]);
        bench.fail("b", of_kind(AttemptKind::Timeout));
        bench.fail("c", fatal());
        bench.wait(3600);
        assert_eq!((bench.status(), bench.due()), (Status::Undoing, vec![]));
        let word = Order::Resolve {
            action: "b".to_owned(),
            attempt: None,
            applied,
            output: 1.into(),
        };
        assert!(bench.order(word).done);
        assert_eq!(
            bench.state("b"),
            if applied {
                ActionState::Completed
            } else {
                ActionState::Failed
            }
        );
        bench.run(&["undo-a"]);
        assert_eq!(bench.status(), Status::Undone);
    }
}

#[test]
fn without_an_undo_independent_branches_finish_before_it_is_failed() {
    let plain = Mode::Plain;
    let mut bench = Bench::new(vec![
        action("a", plain, &[]),
        action("b", plain, &[]),
        action("c", plain, &[1]),
        action("d", plain, &[0]),
    ]);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    assert_eq!(
        (bench.status(), bench.state("d")),
        (Status::Running, ActionState::Skipped)
    );
    bench.run(&["b", "c"]);
    assert_eq!(bench.status(), Status::Failed);
}

#[test]
fn a_refused_output_is_undone() {
    let mut bench = Bench::with_limits(
        vec![undoable("a", Mode::Plain, &[])],
        Limits::new().output(10),
    );
    bench.begin(&["a"]);
    bench.succeed("a", "x".repeat(100));
    assert_eq!(bench.due(), ["undo-a"], "its effect is there");
}
