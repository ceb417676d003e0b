//! What a claim begins in the same write.

use super::*;
use crate::{
    lease::SUSPECT_FROM,
    machine::{Begins, claim},
    patch::Patch,
};

/// A worker takes it, and may begin what it has the methods for.
fn take(bench: &mut Bench, methods: &[&str]) -> Patch {
    let begins = Begins {
        methods: methods.iter().map(|name| (*name).to_owned()).collect(),
        now: bench.now,
        limits: bench.limits,
    };
    let until = DateTime::from_millis(bench.now.timestamp_millis() + 10_000);
    let lease = Lease {
        owner: "w".to_owned(),
        token: format!("token-{}", bench.record.epoch + 1),
        since: bench.now,
        until,
    };
    let patch = claim(&mut bench.record, lease, Some(&begins));
    bench.record.rev += 1;
    let rev = bench.record.rev;
    patch.apply_to(&mut bench.document, rev).unwrap();
    assert_eq!(bench.document, bench.record.to_document().unwrap());
    assert_eq!(check(&bench.record), []);
    patch
}

/// Two actions at once, handed back.
fn two(first: Mode, second: Mode) -> Bench {
    let mut bench = Bench::new(vec![action("a", first, &[]), action("b", second, &[])]);
    bench.must(Event::HandBack);
    bench
}

fn running(bench: &Bench) -> Vec<&str> {
    let actions = bench.record.actions.iter();
    let running = actions.filter(|action| action.running.is_some());
    running.map(|action| &*action.name).collect()
}

#[test]
fn it_begins_the_first_action_that_may_run_twice() {
    let mut bench = two(Mode::Plain, Mode::Idempotent);
    let patch = take(&mut bench, &["a", "b"]);
    assert_eq!(running(&bench), ["b"]);
    assert_eq!(bench.record.actions[1].attempts, 1);
    assert_eq!(patch.mail(), Some(bench.record.mail));
    let begun = bench.record.actions[1].running.as_ref().unwrap();
    assert_eq!((begun.epoch, &*begun.worker), (bench.record.epoch, "w"));
    bench.begin(&["a"]);
}

#[test]
fn only_what_the_worker_names() {
    let mut bench = two(Mode::Idempotent, Mode::Transactional);
    let _ = take(&mut bench, &["b"]);
    assert_eq!(running(&bench), ["b"]);
    let mut bench = two(Mode::Idempotent, Mode::Idempotent);
    let _ = take(&mut bench, &[]);
    assert_eq!(running(&bench), [""; 0]);
}

#[test]
fn nothing_where_something_ran_when_the_lease_ended() {
    let mut bench = two(Mode::Idempotent, Mode::Idempotent);
    let _ = take(&mut bench, &["a"]);
    let _ = take(&mut bench, &["a", "b"]);
    assert_eq!(running(&bench), ["a"], "that of the worker that is gone");
    assert_eq!(bench.record.losses, 1);
    bench.must(Event::TakenOver { settle: SETTLE });
    assert_eq!(running(&bench), [""; 0]);
}

#[test]
fn nothing_of_a_suspect() {
    let mut bench = two(Mode::Idempotent, Mode::Idempotent);
    bench.record.losses = SUSPECT_FROM;
    bench.document = bench.record.to_document().unwrap();
    let _ = take(&mut bench, &["a", "b"]);
    assert_eq!(running(&bench), [""; 0]);
}

#[test]
fn nothing_while_a_command_is_unread() {
    let mut bench = two(Mode::Idempotent, Mode::Idempotent);
    bench.record.inbox.push(Command {
        id: "c".to_owned(),
        order: Order::Cancel {
            reason: "no".to_owned(),
        },
        by: "ann".to_owned(),
        at: bench.now,
    });
    bench.record.mail += 1;
    bench.document = bench.record.to_document().unwrap();
    let _ = take(&mut bench, &["a", "b"]);
    assert_eq!(running(&bench), [""; 0]);
}

#[test]
fn nothing_that_is_due_later_or_after_the_deadline() {
    let actions = vec![action("a", Mode::Idempotent, &[])];
    let mut bench = Bench::new(actions.clone());
    bench.begin(&["a"]);
    bench.fail("a", error());
    bench.must(Event::HandBack);
    let _ = take(&mut bench, &["a"]);
    assert_eq!(running(&bench), [""; 0], "its retry is due later");

    let mut bench = Bench::with_deadline(actions, Duration::from_secs(5));
    bench.must(Event::HandBack);
    bench.now = DateTime::from_millis(bench.now.timestamp_millis() + 5_000);
    let _ = take(&mut bench, &["a"]);
    assert_eq!(running(&bench), [""; 0], "its deadline has passed");
    bench.must(Event::Overdue);
}
