//! Commands in right and in wrong states, and what is answered.

use super::*;

fn cancel() -> Order {
    Order::Cancel {
        reason: "why not".to_owned(),
    }
}

fn pause() -> Order {
    Order::Pause {
        reason: "lunch".to_owned(),
    }
}

fn no(bench: &mut Bench, order: Order) -> String {
    let before = (bench.record.state, bench.record.actions.clone());
    let answer = bench.order(order);
    assert!(!answer.done, "{}", answer.message);
    assert_eq!(before, (bench.record.state, bench.record.actions.clone()));
    answer.message
}

fn two(mode: Mode) -> Bench {
    Bench::new(vec![action("a", mode, &[]), action("b", mode, &[0])])
}

#[test]
fn a_milestone_that_has_not_begun_is_cancelled_at_once() {
    let mut bench = two(Mode::Plain);
    assert!(bench.order(cancel()).done);
    assert_eq!(
        (bench.status(), bench.state("a"), bench.record.begin_date),
        (Status::Cancelled, ActionState::Skipped, None)
    );
    assert_eq!(
        bench
            .record
            .unwind
            .as_ref()
            .map(|unwind| unwind.reason.as_str()),
        Some("why not")
    );
}

#[test]
fn a_cancel_waits_for_what_runs_and_undoes_it() {
    let mut bench = Bench::new(vec![
        undoable("a", Mode::Plain, &[]),
        action("b", Mode::Plain, &[0]),
    ]);
    bench.begin(&["a"]);
    assert!(bench.order(cancel()).done);
    assert_eq!((bench.status(), bench.due()), (Status::Undoing, vec![]));
    assert_eq!(no(&mut bench, cancel()), "already undoing");
    bench.succeed("a", 1);
    assert_eq!(
        (bench.state("b"), bench.due()),
        (ActionState::Skipped, vec!["undo-a".to_owned()])
    );
    bench.run(&["undo-a"]);
    assert_eq!(
        (bench.status(), bench.record.outputs()),
        (Status::Cancelled, bson::doc! { "a": 1 })
    );
}

#[test]
fn a_cancel_ends_what_is_retried_later() {
    let mut bench = two(Mode::Idempotent);
    bench.begin(&["a"]);
    bench.fail("a", error());
    assert!(bench.order(cancel()).done);
    assert_eq!(
        (bench.status(), bench.state("a"), bench.record.actions[0].at),
        (Status::Cancelled, ActionState::Failed, None)
    );
}

#[test]
fn a_cancel_while_undoing_after_a_failure() {
    let mut bench = Bench::new(vec![undoable("a", Mode::Plain, &[])]);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    assert_eq!(no(&mut bench, cancel()), "already undoing");
    bench.run(&["undo-a"]);
    assert_eq!(bench.status(), Status::Undone);
}

#[test]
fn a_pause_lets_end_what_runs_and_begins_nothing() {
    let mut bench = two(Mode::Plain);
    bench.begin(&["a"]);
    assert!(bench.order(pause()).done);
    let hold = bench.record.hold.as_ref().unwrap();
    assert_eq!(
        (hold.reason.as_str(), hold.by.as_str(), hold.since),
        ("lunch", "ann", bench.now)
    );
    assert_eq!(no(&mut bench, pause()), "it is already on hold");
    bench.succeed("a", 1);
    assert_eq!(
        (bench.state("b"), bench.due()),
        (ActionState::Ready, vec![])
    );
    assert!(bench.try_begin(&["b"]).is_err());
    bench.must(Event::HandBack);
    assert_eq!(
        (bench.record.next.as_ref(), bench.record.due.len()),
        (None, 0)
    );
    assert!(bench.order(Order::Resume).done);
    assert_eq!(no(&mut bench, Order::Resume), "it is not on hold");
    bench.run(&["b"]);
    assert_eq!(bench.status(), Status::Completed);
}

#[test]
fn a_pause_stops_undoing_too_and_ends_with_the_milestone() {
    let mut bench = Bench::new(vec![undoable("a", Mode::Plain, &[])]);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    assert!(bench.order(pause()).done);
    assert!(bench.due().is_empty() && bench.try_begin(&["undo-a"]).is_err());
    assert!(bench.order(Order::Resume).done);
    bench.begin(&["undo-a"]);
    assert!(bench.order(pause()).done);
    bench.succeed("undo-a", 1);
    assert_eq!(
        (bench.status(), bench.record.hold.as_ref()),
        (Status::Undone, None)
    );
}

#[test]
fn a_cancel_on_hold_undoes_nothing_before_it_resumes() {
    let mut bench = Bench::new(vec![
        undoable("a", Mode::Plain, &[]),
        action("b", Mode::Plain, &[0]),
    ]);
    bench.run(&["a"]);
    assert!(bench.order(pause()).done && bench.order(cancel()).done);
    assert_eq!((bench.status(), bench.due()), (Status::Undoing, vec![]));
    assert!(bench.order(Order::Resume).done);
    bench.run(&["undo-a"]);
    assert_eq!(bench.status(), Status::Cancelled);
}

#[test]
fn only_what_failed_is_retried() {
    let mut bench = two(Mode::Plain);
    assert_eq!(
        no(&mut bench, Order::Retry),
        "only a failed milestone can be retried; it is pending"
    );
    bench.begin(&["a"]);
    assert_eq!(
        no(&mut bench, Order::Retry),
        "only a failed milestone can be retried; it is running"
    );
    bench.fail("a", fatal());
    let ended = bench.record.end_date;
    bench.wait(60);
    bench.order(Order::Retry);
    assert_eq!(
        (bench.status(), bench.record.end_date, ended.is_some()),
        (Status::Running, None, true)
    );
    assert_eq!(
        (
            bench.state("a"),
            bench.state("b"),
            bench.record.actions[0].failures
        ),
        (ActionState::Ready, ActionState::Pending, 0)
    );
    bench.run(&["a", "b"]);
    assert_eq!(bench.status(), Status::Completed);
}

#[test]
fn undoing_is_retried_only_where_an_undo_has_failed() {
    let mut bench = Bench::new(vec![undoable("a", Mode::Plain, &[])]);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    assert_eq!(
        no(&mut bench, Order::Retry),
        "it is undoing, and no undo or verify of it has failed for good"
    );
}

#[test]
fn two_commands_of_one_inbox_see_each_other() {
    let mut bench = two(Mode::Plain);
    bench.put(pause());
    bench.put(pause());
    bench.put(Order::Resume);
    bench.must(Event::Mail);
    let done = bench.record.answers.iter().map(|answer| answer.done);
    assert_eq!(done.collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(bench.record.hold, None);
}

/// A failed milestone is still held by whoever reads its mail, whatever comes first in it.
#[test]
fn a_retry_behind_a_command_that_came_too_late() {
    let mut bench = two(Mode::Plain);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    bench.put(cancel());
    bench.put(Order::Retry);
    bench.must(Event::Mail);
    let answers = bench
        .record
        .answers
        .iter()
        .map(|answer| answer.message.as_str());
    assert_eq!(
        answers.collect::<Vec<_>>(),
        ["it is already failed", "it goes on from what failed"]
    );
    assert!(bench.record.lease.is_some() && bench.status() == Status::Running);
    bench.run(&["a", "b"]);
}

#[test]
fn the_take_over_of_a_failed_one_carries_out_its_retry() {
    let mut bench = two(Mode::Plain);
    bench.begin(&["a"]);
    bench.fail("a", fatal());
    bench.put(Order::Retry);
    bench.must(Event::TakenOver { settle: SETTLE });
    assert!(bench.record.lease.is_some() && bench.record.answers[0].done);
    assert_eq!(bench.due(), ["a"]);
}

#[test]
fn nothing_begins_past_an_unread_command() {
    let mut bench = two(Mode::Plain);
    bench.put(pause());
    let before = bench.record.clone();
    assert!(bench.try_begin(&["a"]).is_err());
    assert_eq!(bench.record, before);
    bench.put(Order::Resume);
    bench.begin(&["a"]);
    assert_eq!(
        (bench.record.answers.len(), bench.state("a")),
        (2, ActionState::Running)
    );
}

#[test]
fn nothing_is_handed_back_or_ended_past_an_unread_command() {
    let mut bench = two(Mode::Plain);
    bench.put(pause());
    bench.must(Event::HandBack);
    assert!(
        bench.record.hold.is_some() && bench.record.next.is_none() && bench.record.inbox.is_empty()
    );
    let mut bench = two(Mode::Plain);
    bench.put(cancel());
    bench.must(Event::HandBack);
    assert_eq!(bench.status(), Status::Cancelled);
    let mut bench = Bench::new(vec![action("a", Mode::Plain, &[])]);
    bench.begin(&["a"]);
    bench.put(cancel());
    bench.succeed("a", 1);
    assert_eq!(
        (bench.status(), bench.record.answers[0].message.as_str()),
        (Status::Completed, "it is already completed")
    );
}

#[test]
fn a_repeated_id_does_nothing() {
    let mut bench = two(Mode::Plain);
    bench.put(pause());
    let command = bench.record.inbox[0].clone();
    bench.must(Event::Mail);
    bench.order(Order::Resume);
    bench.put(pause());
    bench.record.inbox[0].id.clone_from(&command.id);
    bench.document = bench.record.to_document().unwrap();
    bench.must(Event::Mail);
    assert_eq!(
        (bench.record.hold.as_ref(), bench.record.answers.len()),
        (None, 2)
    );
}

#[test]
fn the_last_answers_are_kept_and_their_texts_are_bounded() {
    let mut bench = two(Mode::Plain);
    for _ in 0..40 {
        bench.order(Order::Waive {
            action: "x".repeat(100_000),
        });
    }
    assert_eq!(bench.record.answers.len(), crate::limits::MAX_ANSWERS);
    assert_eq!(bench.record.answers[0].id, "command-9");
    bench.order(Order::Pause {
        reason: "y".repeat(100_000),
    });
    bench.order(Order::Cancel {
        reason: "z".repeat(100_000),
    });
    let size = crate::patch::size_of_value(&Bson::Document(bench.document.clone()));
    assert!(size < 160 * 1024, "{size}");
}
