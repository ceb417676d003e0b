//! Random histories: what workers, operators and accidents do, in any order. Numbers choose among what is there.

use std::time::Duration;

use bson::{Bson, doc};
use milestone_core::{
    machine::Failed,
    record::{AttemptError, AttemptKind, Order},
    retry::RetryPolicy,
};
use proptest::{collection::vec, prelude::*};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A worker takes the milestone, if it may; `lost`: even from one that lives, whose lease ends now.
    Claim { lost: bool },
    /// A worker takes the milestone, if it may, once it is due, and begins all that it can.
    Work,
    /// Some of what is due begins; one bit each.
    Begin(u8),
    /// A running attempt succeeds.
    Succeed(u8, Bson),
    /// A running attempt fails.
    Fail(u8, Failed),
    /// A command comes.
    Send(u8, Order),
    /// The worker carries out the commands.
    Mail,
    /// The worker gives the milestone back, if nothing runs; otherwise that is refused.
    HandBack,
    /// Time goes by, in seconds.
    Wait(u16),
    /// The end of an attempt comes that does not run.
    Stale(u8, i64),
    /// What is not due, or does not exist, shall begin.
    BeginAnything(u8),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 0..48)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::bool::weighted(0.5).prop_map(|lost| Step::Claim { lost }),
        8 => Just(Step::Work),
        6 => any::<u8>().prop_map(Step::Begin),
        10 => (any::<u8>(), output()).prop_map(|(which, output)| Step::Succeed(which, output)),
        8 => (any::<u8>(), failed()).prop_map(|(which, failed)| Step::Fail(which, failed)),
        3 => (any::<u8>(), order()).prop_map(|(id, order)| Step::Send(id, order)),
        3 => Just(Step::Mail),
        2 => Just(Step::HandBack),
        3 => (0..400_u16).prop_map(Step::Wait),
        1 => (any::<u8>(), -1..6_i64).prop_map(|(action, number)| Step::Stale(action, number)),
        1 => any::<u8>().prop_map(Step::BeginAnything),
    ]
}

fn output() -> impl Strategy<Value = Bson> {
    prop_oneof![
        4 => any::<i32>().prop_map(Bson::from),
        1 => Just(Bson::Null),
        1 => Just(doc! { "$oid": "x", "a.b": [{ "": null }] }.into()),
        // Over the limit that these tests set.
        1 => Just(Bson::String("x".repeat(3000))),
    ]
}

fn failed() -> impl Strategy<Value = Failed> {
    let kind = prop_oneof![
        4 => Just(None),
        1 => Just(Some(AttemptKind::Timeout)),
        1 => Just(Some(AttemptKind::Panic)),
        1 => Just(Some(AttemptKind::Cancelled)),
        1 => Just(Some(AttemptKind::Abandoned)),
        1 => Just(Some(AttemptKind::Refused)),
    ];
    let policy = prop_oneof![
        2 => Just(RetryPolicy::new()),
        1 => Just(RetryPolicy::never()),
        1 => Just(RetryPolicy::new().max(3)),
    ];
    let after = prop::option::weighted(0.2, (0..1000_u64).prop_map(Duration::from_secs));
    // Long enough for the report to be made smaller now and then.
    let text = prop_oneof![Just(0_usize), Just(50), Just(5000)];
    let parts = (
        kind,
        policy,
        after,
        prop::bool::weighted(0.3),
        0.0..1.0,
        0..60_u64,
        text,
    );
    parts.prop_map(
        |(kind, policy, retry_after, fatal, jitter, settle, text)| Failed {
            error: AttemptError {
                kind: "Error".to_owned(),
                message: "m".repeat(text),
                chain: vec!["c".repeat(text)],
                backtrace: (text > 0).then(|| "b".repeat(text)),
                location: None,
            },
            kind,
            fatal,
            retry_after,
            policy,
            jitter,
            settle: Duration::from_secs(settle),
        },
    )
}

fn order() -> impl Strategy<Value = Order> {
    let action = || (0..9_u8).prop_map(|index| format!("action-{index}"));
    let resolve = (
        action(),
        prop::option::of(0..4_i64),
        any::<bool>(),
        output(),
    );
    prop_oneof![
        2 => Just(Order::Cancel { reason: "c".to_owned() }),
        2 => Just(Order::Pause { reason: "p".repeat(5000) }),
        2 => Just(Order::Resume),
        3 => Just(Order::Retry),
        4 => resolve.prop_map(|(action, attempt, applied, output)| Order::Resolve { action, attempt, applied, output }),
        2 => action().prop_map(|action| Order::Waive { action }),
    ]
}
