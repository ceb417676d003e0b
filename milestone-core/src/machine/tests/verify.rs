//! A function says whether an attempt in doubt took effect.

use super::*;
use crate::{record::VerifyState, verdict::Verdict};

fn verified(name: &str, after: &[usize]) -> PlannedAction {
    let mut action = action(name, Mode::Plain, after);
    action.verify = Some(format!("verify-{name}"));
    action
}

/// `a`, whose worker has died, then `b`; the old attempt has had its time.
fn in_doubt(undo: bool) -> Bench {
    let mut a = verified("a", &[]);
    a.undo = undo.then(|| "undo-a".to_owned());
    let mut bench = Bench::new(vec![a, action("b", Mode::Idempotent, &[0])]);
    bench.begin(&["a"]);
    bench.claim();
    bench
}

fn say(bench: &mut Bench, verdict: &Verdict<Bson>) {
    bench.succeed("verify-a", bson::serialize_to_bson(verdict).unwrap());
}

#[test]
fn it_is_asked_only_after_settle() {
    let mut bench = in_doubt(false);
    assert_eq!(bench.status(), Status::InDoubt);
    assert!(
        bench.try_begin(&["verify-a"]).is_err(),
        "the old attempt may still be at work"
    );
    bench.must(Event::HandBack);
    let settled = bench.record.actions[0].settle_after;
    assert_eq!(bench.record.next.as_ref().map(|next| next.at), settled);
    assert_eq!(bench.record.due[0].method, "verify-a");
    bench.wait(30);
    bench.claim();
    bench.begin(&["verify-a"]);
    assert_eq!(bench.status(), Status::InDoubt);
}

#[test]
fn applied_goes_on_with_the_output() {
    let mut bench = in_doubt(false);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    say(&mut bench, &Verdict::Applied(7.into()));
    assert_eq!(bench.record.outputs(), bson::doc! { "a": 7 });
    bench.run(&["b"]);
    assert_eq!(
        (bench.status(), bench.record.actions[0].attempts),
        (Status::Completed, 1)
    );
    let phases: Vec<_> = bench
        .record
        .report
        .iter()
        .map(|attempt| attempt.phase)
        .collect();
    assert_eq!(
        phases,
        [Phase::Do, Phase::Verify, Phase::Do],
        "its attempt is in the report"
    );
}

#[test]
fn not_applied_runs_it_again() {
    let mut bench = in_doubt(false);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    say(&mut bench, &Verdict::NotApplied);
    bench.run(&["a", "b"]);
    assert_eq!(
        (bench.status(), bench.record.actions[0].attempts),
        (Status::Completed, 2)
    );
}

#[test]
fn its_errors_are_retried_and_in_the_end_an_operator_is_asked() {
    let mut bench = in_doubt(false);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    bench.fail("verify-a", error());
    assert!(
        bench.try_begin(&["verify-a"]).is_err(),
        "it waits for its backoff"
    );
    bench.wait(2);
    bench.begin(&["verify-a"]);
    bench.fail("verify-a", fatal());
    let verify = bench.record.actions[0].verify.clone().unwrap();
    assert_eq!((verify.state, verify.attempts), (VerifyState::Failed, 2));
    assert!(bench.due().is_empty());
    assert!(bench.order(Order::Retry).done, "it is asked again");
    bench.begin(&["verify-a"]);
    say(&mut bench, &Verdict::Applied(Bson::Null));
    assert_eq!(bench.state("a"), ActionState::Completed);
}

#[test]
fn what_is_no_verdict_is_for_an_operator() {
    let mut bench = in_doubt(false);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    bench.succeed("verify-a", true);
    assert_eq!(
        bench.record.actions[0].verify.as_ref().unwrap().state,
        VerifyState::Failed
    );
    let error = bench.record.report[0].error.clone().unwrap();
    assert!(
        error.message.contains("gives a `Verdict`"),
        "{}",
        error.message
    );
    assert_eq!(bench.state("a"), ActionState::InDoubt);
}

#[test]
fn an_operator_goes_before_it() {
    let mut bench = in_doubt(false);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    let number = bench.number("verify-a");
    let resolve = Order::Resolve {
        action: "a".to_owned(),
        attempt: None,
        applied: true,
        output: 3.into(),
    };
    assert!(bench.order(resolve).done);
    assert_eq!(bench.record.outputs(), bson::doc! { "a": 3 });
    let late = Event::Succeeded {
        task: Task::to_verify(0),
        number,
        output: bson::serialize_to_bson(&Verdict::<Bson>::NotApplied).unwrap(),
    };
    assert!(bench.event(late).is_err(), "its verdict comes too late");
}

#[test]
fn its_own_worker_may_die_as_well() {
    let mut bench = in_doubt(false);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    bench.claim();
    assert_eq!((bench.status(), bench.record.losses), (Status::InDoubt, 2));
    bench.begin(&["verify-a"]);
    say(&mut bench, &Verdict::Applied(1.into()));
    assert_eq!(bench.state("a"), ActionState::Completed);
}

#[test]
fn while_undoing_it_is_asked_only_where_there_is_no_undo() {
    let cancel = || Order::Cancel {
        reason: "c".to_owned(),
    };
    let mut bench = in_doubt(true);
    bench.wait(30);
    bench.order(cancel());
    assert_eq!(bench.due(), ["undo-a"]);
    let mut bench = in_doubt(false);
    bench.wait(30);
    bench.order(cancel());
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::Undoing, vec!["verify-a".to_owned()])
    );
    bench.begin(&["verify-a"]);
    say(&mut bench, &Verdict::NotApplied);
    assert_eq!(
        (bench.status(), bench.state("a")),
        (Status::Cancelled, ActionState::Failed)
    );
}

#[test]
fn an_undo_waits_for_a_verify_that_runs() {
    let mut bench = in_doubt(true);
    bench.wait(30);
    bench.begin(&["verify-a"]);
    bench.order(Order::Cancel {
        reason: "c".to_owned(),
    });
    assert!(bench.due().is_empty());
    say(&mut bench, &Verdict::Applied(1.into()));
    bench.run(&["undo-a"]);
    assert_eq!(bench.status(), Status::Cancelled);
}
