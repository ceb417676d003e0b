use milestone_runtime::core::{
    machine::{Event, Task},
    options::Mode,
    record::{AttemptKind, Order},
};

use super::*;
use crate::fixtures::{Story, action, at, worker};

/// What is told at 5 s, a line each.
fn told(record: &MilestoneRecord, workers: &[WorkerInfo]) -> String {
    told_at(record, workers, 5)
}

fn told_at(record: &MilestoneRecord, workers: &[WorkerInfo], seconds: i64) -> String {
    let around = Surroundings {
        now: at(seconds),
        workers,
        program: "milestone",
    };
    let mut text = String::new();
    for reason in explain(record, &around) {
        push!(text, "{}\n", reason.what);
        for line in reason.then {
            push!(text, "  {line}\n");
        }
    }
    text
}

fn all() -> Vec<WorkerInfo> {
    vec![
        worker("a", &["reserve", "charge", "send", "file", "release"]),
        worker("b", &["charge"]),
    ]
}

/// F42: `show` says that no worker has `x`.
#[test]
fn f42_what_no_worker_has_is_named() {
    let record = Story::order().told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    `reserve` is due, and waits for a worker
      1 worker lives, and can run it
    ");
    insta::assert_snapshot!(told(&record, &[worker("b", &["charge"])]), @r"
    `reserve` is due, and waits for a worker
      no worker has `reserve`
      1 worker lives; start one whose binary has the action (a library's is there only if something names the crate)
    ");
    insta::assert_snapshot!(told(&record, &[]), @r"
    `reserve` is due, and waits for a worker
      no worker has `reserve`
      no worker lives at all
    ");
    let mut elsewhere = worker("c", &["reserve"]);
    elsewhere.queues = vec!["slow".to_owned()];
    insta::assert_snapshot!(told(&record, &[elsewhere]), @r"
    `reserve` is due, and waits for a worker
      no worker that has `reserve` serves the queue `default`
      1 worker lives; start one whose binary has the action (a library's is there only if something names the crate)
    ");
}

#[test]
fn what_runs_is_told_with_its_worker() {
    let record = Story::order().claim().begin(Task::to_do(0)).told();
    insta::assert_snapshot!(told(&record, &all()), @"`reserve` runs: attempt 1, on bank-7-1 since 2026-01-01 03:00:02 UTC (3s ago)");
    insta::assert_snapshot!(told_at(&record, &all(), 20), @r"
    `reserve` runs: attempt 1, on bank-7-1 since 2026-01-01 03:00:02 UTC (18s ago)
      its worker has been silent: the lease ended 9s ago, and another worker takes over
    ");
}

#[test]
fn a_backoff_tells_its_time_and_its_error() {
    let story = Story::order().claim().begin(Task::to_do(0));
    let record = story.fail(Task::to_do(0), None, false).hand_back().told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    `reserve` is tried again at 2026-01-01 03:00:33 UTC (in 28s): it has failed once
      the bank does not answer
    ");
    insta::assert_snapshot!(told(&record, &[]), @r"
    `reserve` is tried again at 2026-01-01 03:00:33 UTC (in 28s): it has failed once
      the bank does not answer
      no worker has `reserve`
      no worker lives at all
    ");
}

#[test]
fn a_doubt_tells_both_answers_and_when_one_is_safe() {
    let story = Story::order().claim().run(0).begin(Task::to_do(1));
    let story = story.fail(Task::to_do(1), Some(AttemptKind::Timeout), false);
    let record = story.hand_back().told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    `charge` is in doubt: attempt 1 took longer than its timeout, so nobody knows whether it took effect
      it began on bank-7-1 at 2026-01-01 03:00:04 UTC (1s ago)
      find out where it takes effect, then say so:
        it did:      milestone resolve order-7 charge --applied --output '<what it gave, as JSON>'
        it did not:  milestone resolve order-7 charge --not-applied
      `--not-applied` is safe from 2026-01-01 03:00:35 UTC (in 30s) on: until then the old attempt may still take effect
    ");
    insta::assert_snapshot!(told_at(&record, &all(), 60), @r"
    `charge` is in doubt: attempt 1 took longer than its timeout, so nobody knows whether it took effect
      it began on bank-7-1 at 2026-01-01 03:00:04 UTC (56s ago)
      find out where it takes effect, then say so:
        it did:      milestone resolve order-7 charge --applied --output '<what it gave, as JSON>'
        it did not:  milestone resolve order-7 charge --not-applied
      `--not-applied` is safe: since 2026-01-01 03:00:35 UTC (25s ago) the old attempt can no longer take effect
    ");
}

#[test]
fn a_doubt_while_undoing_holds_up_what_comes_before() {
    let story = Story::order().claim().run(0).begin(Task::to_do(1));
    let story = story.fail(Task::to_do(1), Some(AttemptKind::Panic), false);
    let reason = "a mistake".to_owned();
    let record = story.command(Order::Cancel { reason }).hand_back().told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    it is being undone by ann@desk-3 since 2026-01-01 03:00:06 UTC (in 1s), and ends cancelled: a mistake
    `charge` is in doubt: attempt 1 panicked, so nobody knows whether it took effect
      it began on bank-7-1 at 2026-01-01 03:00:04 UTC (1s ago)
      find out where it takes effect, then say so:
        it did:      milestone resolve order-7 charge --applied --output '<what it gave, as JSON>'
        it did not:  milestone resolve order-7 charge --not-applied
      `--not-applied` is safe from 2026-01-01 03:00:35 UTC (in 30s) on: until then the old attempt may still take effect
      what comes before it is not undone until it is said
    ");
}

/// charge, with `was_charged` to look whether it took effect, in doubt since 3 s.
fn verified() -> Story {
    let mut charge = action("charge", Mode::Plain, &[]);
    charge.verify = Some("was_charged".to_owned());
    let story = Story::new("Order", vec![charge])
        .claim()
        .begin(Task::to_do(0));
    story.fail(Task::to_do(0), Some(AttemptKind::Timeout), false)
}

#[test]
fn a_doubt_tells_who_looks_into_it() {
    let record = verified().hand_back().told();
    insta::assert_snapshot!(told(&record, &[worker("a", &["charge"])]), @r"
    `charge` is in doubt: attempt 1 took longer than its timeout, so nobody knows whether it took effect
      it began on bank-7-1 at 2026-01-01 03:00:02 UTC (3s ago)
      find out where it takes effect, then say so:
        it did:      milestone resolve order-7 charge --applied --output '<what it gave, as JSON>'
        it did not:  milestone resolve order-7 charge --not-applied
      `--not-applied` is safe from 2026-01-01 03:00:33 UTC (in 28s) on: until then the old attempt may still take effect
      it need not be said: `was_charged` looks, see below
    `was_charged`, which looks whether `charge` took effect, may begin at 2026-01-01 03:00:33 UTC (in 28s)
      no worker has `was_charged`
      1 worker lives; start one whose binary has the action (a library's is there only if something names the crate)
    ");
    let story = verified().wait_until(40).begin(Task::to_verify(0));
    insta::assert_snapshot!(told_at(&story.record, &all(), 45), @r"
    `was_charged`, which looks whether `charge` took effect, runs: attempt 1, on bank-7-1 since 2026-01-01 03:00:41 UTC (4s ago)
      its worker has been silent: the lease ended 34s ago, and another worker takes over
    `charge` is in doubt: attempt 1 took longer than its timeout, so nobody knows whether it took effect
      it began on bank-7-1 at 2026-01-01 03:00:02 UTC (43s ago)
      find out where it takes effect, then say so:
        it did:      milestone resolve order-7 charge --applied --output '<what it gave, as JSON>'
        it did not:  milestone resolve order-7 charge --not-applied
      `--not-applied` is safe: since 2026-01-01 03:00:33 UTC (12s ago) the old attempt can no longer take effect
      it need not be said: `was_charged` looks now
    ");
    let story = story.fail(Task::to_verify(0), None, true).hand_back();
    insta::assert_snapshot!(told_at(&story.told(), &all(), 45), @r"
    `charge` is in doubt: attempt 1 took longer than its timeout, so nobody knows whether it took effect
      it began on bank-7-1 at 2026-01-01 03:00:02 UTC (43s ago)
      find out where it takes effect, then say so:
        it did:      milestone resolve order-7 charge --applied --output '<what it gave, as JSON>'
        it did not:  milestone resolve order-7 charge --not-applied
      `--not-applied` is safe: since 2026-01-01 03:00:33 UTC (12s ago) the old attempt can no longer take effect
      `was_charged`, which should have told, has failed for good; to ask it again: milestone retry order-7
    ");
}

#[test]
fn a_hold_tells_who_and_why() {
    let reason = "the bank is closed".to_owned();
    let story = Story::order().claim().command(Order::Pause { reason });
    let record = story.hand_back().told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    on hold since 2026-01-01 03:00:02 UTC (3s ago), by ann@desk-3: the bank is closed
      nothing new begins until: milestone resume order-7
    ");
}

#[test]
fn an_undo_that_failed_is_retried_or_waived() {
    let story = Story::order().claim().run(0).begin(Task::to_do(1));
    let story = story
        .fail(Task::to_do(1), None, true)
        .begin(Task::to_undo(0));
    let record = story.fail(Task::to_undo(0), None, true).hand_back().told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    it is being undone since 2026-01-01 03:00:05 UTC (now), and ends undone: `charge` failed
    `release`, the undo of `reserve`, has failed for good after 1 attempt
      the bank does not answer
      to try it again:            milestone retry order-7
      if it need not be undone:   milestone waive order-7 reserve
    ");
}

#[test]
fn unread_commands_are_listed() {
    let story = Story::order().claim();
    let record = story.send(Order::Resume).send(Order::Retry).record;
    insta::assert_snapshot!(told(&record, &[]), @r"
    2 commands in the inbox, which no worker has read yet
      resume by ann@desk-3, 4s ago
      retry by ann@desk-3, 4s ago
      no worker lives
    `reserve` is due, and waits for a worker
      no worker has `reserve`
      no worker lives at all
    ");
}

#[test]
fn an_end_tells_what_can_still_be_done() {
    let one = || Story::new("Order", vec![action("charge", Mode::Plain, &[])]).claim();
    let completed = one().run(0).told();
    insta::assert_snapshot!(told(&completed, &[]), @"completed at 2026-01-01 03:00:03 UTC (2s ago)");
    let failed = one()
        .begin(Task::to_do(0))
        .fail(Task::to_do(0), None, true)
        .told();
    insta::assert_snapshot!(told(&failed, &[]), @r"
    failed at 2026-01-01 03:00:03 UTC (2s ago)
      the newest error: charge: the bank does not answer
      to go on from what failed: milestone retry order-7
    ");
    let reason = "a mistake".to_owned();
    let cancelled = one().command(Order::Cancel { reason }).told();
    insta::assert_snapshot!(told(&cancelled, &[]), @r"
    cancelled at 2026-01-01 03:00:02 UTC (3s ago)
      by ann@desk-3: a mistake
    ");
}

#[test]
fn an_alias_and_a_queue_are_told() {
    let mut thank = action("thank", Mode::Idempotent, &[]);
    thank.method = Some("notify".to_owned());
    thank.queue = Some("mail".to_owned());
    let record = Story::new("Order", vec![thank]).told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    `thank` (method `notify`) (queue `mail`) is due, and waits for a worker
      no worker has `notify`
      2 workers live; start one whose binary has the action (a library's is there only if something names the crate)
    ");
}

/// The order, which is to have ended at 20 s.
fn with_deadline(mut story: Story) -> Story {
    story.record.deadline = Some(at(20));
    story.claim()
}

#[test]
fn a_deadline_that_has_ended_it_is_told() {
    let plain = || Story::new("Order", vec![action("charge", Mode::Idempotent, &[])]);
    let story = with_deadline(plain()).begin(Task::to_do(0));
    let story = story.fail(Task::to_do(0), None, false).wait_until(20);
    let record = story.step(Event::Overdue).told();
    assert_eq!(record.state, Status::Failed);
    insta::assert_snapshot!(told_at(&record, &[], 25), @r"
    failed at 2026-01-01 03:00:21 UTC (4s ago)
      its deadline, 2026-01-01T03:00:20Z, has passed
      the newest error: charge: the bank does not answer
      to go on without a deadline: milestone retry order-7
    ");
    let reason = "its deadline, 2026-01-01T03:00:20Z, has passed";
    assert_eq!(in_a_word(&record).as_deref(), Some(reason));
}

#[test]
fn a_hold_beyond_the_deadline_tells_what_a_resume_does() {
    let plain = || Story::new("Order", vec![action("charge", Mode::Idempotent, &[])]);
    let held = |story: Story| {
        let reason = "the bank is closed".to_owned();
        with_deadline(story).command(Order::Pause { reason })
    };
    let record = held(plain()).hand_back().told();
    insta::assert_snapshot!(told_at(&record, &[], 10), @r"
    on hold since 2026-01-01 03:00:02 UTC (8s ago), by ann@desk-3: the bank is closed
      nothing new begins until: milestone resume order-7
      from its deadline on, 2026-01-01 03:00:20 UTC (in 10s), a `resume` ends it at once, and it fails
    ");
    insta::assert_snapshot!(told_at(&record, &[], 30), @r"
    on hold since 2026-01-01 03:00:02 UTC (28s ago), by ann@desk-3: the bank is closed
      nothing new begins until: milestone resume order-7
      its deadline, 2026-01-01 03:00:20 UTC (10s ago), has passed: once it is resumed, it ends at once, and it fails
    ");
    let story = held(Story::order());
    insta::assert_snapshot!(told_at(&story.record, &[], 30), @r"
    on hold since 2026-01-01 03:00:02 UTC (28s ago), by ann@desk-3: the bank is closed
      nothing new begins until: milestone resume order-7
      its deadline, 2026-01-01 03:00:20 UTC (10s ago), has passed: once it is resumed, it ends at once, and what was done is undone
    ");
    let reason = "a mistake".to_owned();
    let undoing = Story::order().claim().run(0).begin(Task::to_do(1));
    let undoing = undoing.command(Order::Cancel { reason });
    let told = told_at(&held(undoing).record, &[], 30);
    assert!(
        told.contains("resume order-7") && !told.contains("deadline"),
        "{told}"
    );
}

/// charge as in [`verified`] beside send, whose verify has failed for good.
#[test]
fn a_retry_is_recommended_where_it_is_accepted() {
    let mut charge = action("charge", Mode::Plain, &[]);
    charge.verify = Some("was_charged".to_owned());
    let send = action("send", Mode::Idempotent, &[]);
    let story = Story::new("Order", vec![charge, send]).claim();
    let story = story.begin(Task::to_do(0));
    let story = story.fail(Task::to_do(0), Some(AttemptKind::Timeout), false);
    let story = story.wait_until(40).begin(Task::to_verify(0));
    let story = story.fail(Task::to_verify(0), None, true);
    let asked = |story: &Story| {
        let text = told_at(&story.record, &all(), 45);
        let line = text
            .lines()
            .find(|line| line.contains("has failed for good"));
        line.unwrap_or_default().trim().to_owned()
    };
    assert_eq!(story.record.state, Status::Running);
    insta::assert_snapshot!(asked(&story), @"`was_charged`, which should have told, has failed for good; to ask it again, once nothing else of it runs or waits to run: milestone retry order-7");
    let story = story.run(1);
    assert_eq!(story.record.state, Status::InDoubt);
    insta::assert_snapshot!(asked(&story), @"`was_charged`, which should have told, has failed for good; to ask it again: milestone retry order-7");
}

#[test]
fn an_undo_waits_for_the_verify_that_runs() {
    let mut charge = action("charge", Mode::Plain, &[]);
    charge.verify = Some("was_charged".to_owned());
    charge.undo = Some("refund".to_owned());
    let story = Story::new("Order", vec![charge]).claim();
    let story = story.begin(Task::to_do(0));
    let story = story.fail(Task::to_do(0), Some(AttemptKind::Timeout), false);
    let story = story.wait_until(40).begin(Task::to_verify(0));
    let reason = "a mistake".to_owned();
    let story = story.command(Order::Cancel { reason });
    let told = told_at(&story.record, &all(), 45);
    insta::assert_snapshot!(told.lines().last().unwrap_or_default().trim(), @"it need not be said: `refund` undoes it in either case, once `was_charged`, which looks now, has ended");
}

#[test]
fn an_undo_that_struggles_may_be_waived() {
    let story = Story::order().claim().run(0).begin(Task::to_do(1));
    let story = story
        .fail(Task::to_do(1), None, true)
        .begin(Task::to_undo(0));
    let record = story.fail(Task::to_undo(0), None, false).hand_back().told();
    insta::assert_snapshot!(told(&record, &all()), @r"
    it is being undone since 2026-01-01 03:00:05 UTC (now), and ends undone: `charge` failed
    `release`, the undo of `reserve`, is tried again at 2026-01-01 03:00:37 UTC (in 32s): it has failed once
      the bank does not answer
      if it need not be undone: milestone waive order-7 reserve
    ");
}

#[test]
fn what_a_terminal_would_act_on_is_told_visibly() {
    let mut story = Story::order();
    story.record.id = "-order\n7".into();
    let reason = "closed\u{1b}[2J\nreally".to_owned();
    let record = story.claim().command(Order::Pause { reason }).hand_back();
    insta::assert_snapshot!(told(&record.told(), &all()), @r#"
    on hold since 2026-01-01 03:00:02 UTC (3s ago), by ann@desk-3: closed\u{1b}[2J\nreally
      nothing new begins until: milestone resume '"-order\n7"'
    "#);
}
