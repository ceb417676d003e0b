//! A milestone that is to have ended by a time.

use super::*;
use crate::machine::is_overdue;

const HOUR: Duration = Duration::from_hours(1);

fn chain(undo: bool) -> Bench {
    let make = if undo { undoable } else { action };
    let actions = vec![
        make("a", Mode::Idempotent, &[]),
        action("b", Mode::Idempotent, &[0]),
    ];
    Bench::with_deadline(actions, HOUR)
}

#[test]
fn nothing_begins_after_it() {
    let mut bench = chain(false);
    bench.run(&["a"]);
    bench.wait(3601);
    assert!(is_overdue(&bench.record, bench.now));
    assert!(bench.try_begin(&["b"]).is_err());
    bench.must(Event::Overdue);
    assert_eq!(
        (bench.status(), bench.state("a"), bench.state("b")),
        (Status::Failed, ActionState::Completed, ActionState::Skipped)
    );
    let reason = &bench.record.unwind.as_ref().unwrap().reason;
    assert_eq!(reason, "its deadline, 1970-01-01T01:16:40Z, has passed");
}

#[test]
fn what_was_done_is_undone() {
    let mut bench = chain(true);
    bench.run(&["a"]);
    bench.wait(3600);
    bench.must(Event::Overdue);
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::Undoing, vec!["undo-a".to_owned()])
    );
    bench.run(&["undo-a"]);
    assert_eq!(bench.status(), Status::Undone);
}

#[test]
fn the_result_that_completes_it_counts_however_late() {
    let mut bench = chain(true);
    bench.run(&["a"]);
    bench.begin(&["b"]);
    bench.wait(7200);
    bench.succeed("b", 1);
    assert_eq!(bench.status(), Status::Completed);
}

/// Also if a worker has heeded the deadline in the meantime: nothing is undone yet.
#[test]
fn the_result_that_completes_it_counts_even_after_it_was_heeded() {
    for undo in [true, false] {
        let mut bench = chain(undo);
        bench.run(&["a"]);
        bench.begin(&["b"]);
        bench.wait(7200);
        bench.must(Event::Overdue);
        assert_eq!(bench.status(), Status::Undoing);
        bench.succeed("b", 1);
        assert_eq!(
            (bench.status(), &bench.record.unwind),
            (Status::Completed, &None)
        );
    }
}

/// Whoever hands it back says what is due by the time, not what was due before.
#[test]
fn handed_back_after_it_its_undo_is_due() {
    let mut bench = chain(true);
    bench.run(&["a"]);
    bench.wait(7200);
    bench.must(Event::HandBack);
    assert_eq!(bench.record.due[0].method, "undo-a");
    assert_eq!(bench.status(), Status::Undoing);
}

#[test]
fn what_runs_may_end_but_nothing_follows_it() {
    let mut bench = chain(false);
    bench.begin(&["a"]);
    bench.wait(7200);
    bench.must(Event::Overdue);
    assert_eq!(bench.status(), Status::Undoing);
    bench.succeed("a", 1);
    assert_eq!(
        (bench.status(), bench.state("b")),
        (Status::Failed, ActionState::Skipped)
    );
}

#[test]
fn what_never_began_is_over_at_once() {
    for (undo, end) in [(true, Status::Undone), (false, Status::Failed)] {
        let mut bench = chain(undo);
        assert_eq!(bench.status(), Status::Pending);
        bench.wait(3600);
        bench.must(Event::Overdue);
        assert_eq!(
            (bench.status(), bench.state("a")),
            (end, ActionState::Skipped)
        );
    }
}

#[test]
fn anybody_is_told_when_it_is_over() {
    let mut bench = chain(false);
    bench.begin(&["a"]);
    bench.fail(
        "a",
        Failed {
            retry_after: Some(HOUR * 5),
            ..error()
        },
    );
    bench.must(Event::HandBack);
    let deadline = bench.record.deadline.unwrap();
    let entry = bench.record.due.iter().find(|due| due.method.is_empty());
    assert_eq!(entry.unwrap().at, deadline);
    assert_eq!(bench.record.next.as_ref().unwrap().at, deadline);
}

#[test]
fn on_hold_it_waits() {
    let mut bench = chain(false);
    bench.order(Order::Pause {
        reason: "lunch".to_owned(),
    });
    bench.must(Event::HandBack);
    assert_eq!(bench.record.next, None);
    bench.wait(7200);
    let answer = bench.order(Order::Resume);
    assert!(answer.done);
    assert_eq!(bench.status(), Status::Failed);
}

#[test]
fn a_retry_gives_it_all_the_time_that_it_takes() {
    let mut bench = chain(false);
    bench.wait(7200);
    bench.must(Event::Overdue);
    assert_eq!(bench.status(), Status::Failed);
    let answer = bench.order(Order::Retry);
    assert!(answer.done, "{answer:?}");
    assert_eq!((&bench.record.unwind, bench.record.deadline), (&None, None));
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::Pending, vec!["a".to_owned()])
    );
    bench.run(&["a", "b"]);
    assert_eq!(bench.status(), Status::Completed);
}
