//! What a milestone that nobody holds says of itself.

use super::*;
use crate::record::{Due, Next};

fn at(bench: &Bench, seconds: i64) -> DateTime {
    DateTime::from_millis(bench.now.timestamp_millis() + seconds * 1000)
}

fn in_queue(mut action: PlannedAction, queue: &str, method: &str) -> PlannedAction {
    action.queue = Some(queue.to_owned());
    action.method = Some(method.to_owned());
    action
}

fn entries(bench: &Bench) -> Vec<(&str, &str, DateTime)> {
    bench
        .record
        .due
        .iter()
        .map(|due| (due.queue.as_str(), due.method.as_str(), due.at))
        .collect()
}

#[test]
fn one_entry_for_each_queue_and_method_with_the_earliest_time() {
    let repeat = |name| action(name, Mode::Idempotent, &[]);
    let actions = vec![
        in_queue(repeat("a"), "slow", "m"),
        in_queue(repeat("b"), "slow", "m"),
        in_queue(repeat("c"), "fast", "m"),
        repeat("d"),
        action("e", Mode::Idempotent, &[3]),
    ];
    let mut bench = Bench::new(actions);
    bench.begin(&["a", "b", "c"]);
    for (name, seconds) in [("a", 50), ("b", 20), ("c", 30)] {
        bench.fail(
            name,
            Failed {
                retry_after: Some(Duration::from_secs(seconds)),
                ..error()
            },
        );
    }
    bench.wait(1);
    bench.must(Event::HandBack);
    let expected = [
        ("default", "d", at(&bench, 0)),
        ("fast", "m", at(&bench, 29)),
        ("slow", "m", at(&bench, 19)),
    ];
    assert_eq!(entries(&bench), expected);
    assert_eq!(
        bench.record.next,
        Some(Next {
            queue: "default".to_owned(),
            at: at(&bench, 0)
        })
    );
}

#[test]
fn while_held_there_is_one_entry_for_anybody_when_the_lease_ends() {
    let mut bench = Bench::new(vec![
        in_queue(action("a", Mode::Plain, &[]), "slow", "m"),
        action("b", Mode::Plain, &[]),
    ]);
    let until = at(&bench, 10);
    let held = [("default", "", until)];
    assert_eq!(entries(&bench), held);
    bench.begin(&["a"]);
    assert_eq!(
        entries(&bench),
        held,
        "a commit that keeps the lease writes neither"
    );
    assert_eq!(bench.record.next.as_ref().map(|next| next.at), Some(until));
}

#[test]
fn a_new_milestone_is_due_at_once() {
    let plan = Plan::new(vec![in_queue(action("a", Mode::Plain, &[]), "slow", "m")]).unwrap();
    let now = DateTime::from_millis(5);
    let record = MilestoneRecord::new(NewMilestone::new("T", plan), now, &Limits::new()).unwrap();
    assert_eq!(
        record.due,
        [Due {
            queue: "slow".to_owned(),
            at: now,
            method: "m".to_owned()
        }]
    );
    assert_eq!(
        record.next,
        Some(Next {
            queue: "slow".to_owned(),
            at: now
        })
    );
    assert_eq!((record.lease, record.epoch, record.rev), (None, 0, 1));
}

#[test]
fn a_milestone_born_leased_is_held_from_the_first_write_on() {
    let plan = Plan::new(vec![action("a", Mode::Plain, &[])]).unwrap();
    let (now, until) = (DateTime::from_millis(5), DateTime::from_millis(10_005));
    let mut record =
        MilestoneRecord::new(NewMilestone::new("T", plan), now, &Limits::new()).unwrap();
    record.born_leased(Lease {
        owner: "w".to_owned(),
        token: "t".to_owned(),
        since: now,
        until,
    });
    let begin = Event::Begin {
        tasks: vec![Task::to_do(0)],
        worker: "w".to_owned(),
    };
    let _ = advance(&mut record, begin, now, &Limits::new()).unwrap();
    assert_eq!(check(&record), []);
    assert_eq!((record.epoch, record.state), (1, Status::Running));
    assert_eq!(
        record.actions[0]
            .running
            .as_ref()
            .map(|running| (running.number, running.epoch)),
        Some((1, 1))
    );
}

#[test]
fn nothing_is_handed_back_while_an_attempt_runs() {
    let mut bench = Bench::new(vec![undoable("a", Mode::Plain, &[])]);
    bench.begin(&["a"]);
    let runs = || {
        Err(TransitionError::StillRunning {
            action: "a".to_owned(),
        })
    };
    assert_eq!(bench.event(Event::HandBack), runs());
    bench.fail("a", fatal());
    bench.begin(&["undo-a"]);
    assert_eq!(bench.event(Event::HandBack), runs());
}

#[test]
fn the_undo_that_waits_for_a_settlement_is_due_then() {
    let mut bench = Bench::new(vec![
        undoable("a", Mode::Plain, &[]),
        action("b", Mode::Plain, &[]),
    ]);
    bench.begin(&["a", "b"]);
    bench.fail("a", of_kind(AttemptKind::Timeout));
    bench.fail("b", fatal());
    bench.must(Event::HandBack);
    assert_eq!(entries(&bench), [("default", "undo-a", at(&bench, 30))]);
}

#[test]
fn a_terminal_milestone_is_not_due() {
    let mut bench = Bench::new(vec![action("a", Mode::Plain, &[])]);
    bench.run(&["a"]);
    assert_eq!(
        (
            bench.record.due.len(),
            bench.record.next.as_ref(),
            bench.record.lease.as_ref()
        ),
        (0, None, None)
    );
    assert!(
        !bench.document.contains_key("due")
            && !bench.document.contains_key("next")
            && !bench.document.contains_key("lease")
    );
}

#[test]
fn what_begins_hands_back_or_ends_must_not_overlook_a_command() {
    let mut bench = Bench::new(vec![
        action("a", Mode::Idempotent, &[]),
        action("b", Mode::Plain, &[0]),
    ]);
    bench.record.mail = 3;
    bench.document.insert("mail", 3_i64);
    let mail = |bench: &Bench, event| {
        super::super::apply(&bench.record, event, bench.now, &bench.limits)
            .unwrap()
            .mail()
    };
    let begin = |index| Event::Begin {
        tasks: vec![Task::to_do(index)],
        worker: "w".to_owned(),
    };
    assert_eq!(mail(&bench, begin(0)), Some(3));
    assert_eq!(mail(&bench, Event::HandBack), Some(3));
    bench.begin(&["a"]);
    let success = |task, number| Event::Succeeded {
        task,
        number,
        output: 1.into(),
    };
    assert_eq!(
        mail(&bench, success(Task::to_do(0), 1)),
        None,
        "it only stores a result"
    );
    bench.succeed("a", 1);
    bench.begin(&["b"]);
    assert_eq!(mail(&bench, success(Task::to_do(1), 1)), Some(3), "it ends");
}
