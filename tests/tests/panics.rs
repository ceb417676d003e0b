//! Errors and panics as people read them: message, place, stack, causes, and what they ask for.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{fmt, io};

use anyhow::Context as _;
use milestone_runtime::{
    Method, OutcomeError, Runtime,
    action::ActionError,
    core::record::{AttemptError, AttemptKind},
    prelude::*,
};
use milestone_tests::{look::until, on_stores, place::Place};

on_stores!(memory, sqlite, mongodb:
    a_panic_has_message_place_and_stack,
    a_panic_after_an_await_too,
    an_action_error_has_causes_place_and_stack,
    an_anyhow_error_has_causes_and_stack,
    a_fatal_error_deep_in_a_chain_is_not_retried,
    a_fatal_error_in_an_anyhow_chain_is_not_retried,
    a_question_mark_notes_its_place,
    a_long_message_is_cut,
    parameters_that_do_not_fit_are_fatal,
);

/// The error of the newest attempt.
async fn newest(runtime: &Runtime, start: milestone_runtime::Start<()>) -> (usize, AttemptError) {
    runtime.spawn();
    let handle = start.await.unwrap();
    let record = until(runtime, handle.id(), |record| !record.report.is_empty()).await;
    (record.report.len(), record.report[0].error.clone().unwrap())
}

async fn only(place: &Place, action: &str) -> Runtime {
    place.builder().actions([action]).build().await.unwrap()
}

#[action]
async fn panics(Params(index): Params<usize>) -> Result<(), ActionError> {
    let accounts = [100, 200];
    assert!(accounts[index] > 0);
    Ok(())
}

async fn a_panic_has_message_place_and_stack(place: Place) {
    let runtime = place
        .builder()
        .register(Method::new("panics", |_| {
            fn deep() {
                let accounts: Vec<i32> = Vec::new();
                assert!(accounts[std::env::args().len() + 7] > 0);
            }
            async {
                deep();
                Ok::<_, ActionError>(())
            }
        }))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = runtime.start("panics", "panics", ()).await.unwrap();
    let record = until(&runtime, handle.id(), |record| !record.report.is_empty()).await;
    let attempt = &record.report[0];
    assert_eq!(attempt.kind, Some(AttemptKind::Panic));
    assert_eq!(
        attempt.success, None,
        "nobody knows whether a plain action that panicked took effect"
    );
    let error = attempt.error.as_ref().unwrap();
    assert_eq!(error.kind, "panic");
    assert!(
        error
            .message
            .starts_with("index out of bounds: the len is 0"),
        "{error:?}"
    );
    let place = error.location.as_deref().unwrap();
    assert!(place.contains("tests/panics.rs:"), "{place}");
    let stack = error.backtrace.as_deref().unwrap();
    assert!(stack.contains("tests/panics.rs:"), "{stack}");
}

#[action(idempotent, retry(max = 1))]
async fn panics_later() -> Result<(), ActionError> {
    tokio::task::yield_now().await;
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    panic!("too late by {} ms", 1);
}

async fn a_panic_after_an_await_too(place: Place) {
    let runtime = only(&place, "panics_later").await;
    let (count, error) = newest(&runtime, milestone!(panics_later).start(&runtime, ())).await;
    assert_eq!((count, &*error.message), (1, "too late by 1 ms"));
    assert!(error.location.unwrap().contains("panics.rs"));
    let stack = error.backtrace.unwrap();
    assert!(stack.contains("tests/panics.rs:"), "{stack}");
}

#[derive(Debug)]
struct BankError(io::Error);

impl fmt::Display for BankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bank is closed")
    }
}

impl std::error::Error for BankError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[action(idempotent, retry(max = 1))]
async fn closed() -> Result<(), ActionError> {
    Err(ActionError::new(BankError(io::Error::other(
        "no light in the window",
    ))))
}

async fn an_action_error_has_causes_place_and_stack(place: Place) {
    let runtime = only(&place, "closed").await;
    let (_, error) = newest(&runtime, milestone!(closed).start(&runtime, ())).await;
    assert!(error.kind.ends_with("BankError"), "{error:?}");
    assert_eq!(error.message, "the bank is closed");
    assert_eq!(error.chain, ["no light in the window"]);
    assert!(error.location.unwrap().contains("tests/panics.rs:"));
    assert!(error.backtrace.unwrap().contains("tests/panics.rs:"));
}

#[action(idempotent, retry(max = 1))]
async fn any_closed() -> anyhow::Result<()> {
    Err(BankError(io::Error::other("no light in the window"))).context("the transfer did not begin")
}

async fn an_anyhow_error_has_causes_and_stack(place: Place) {
    let runtime = only(&place, "any_closed").await;
    let (_, error) = newest(&runtime, milestone!(any_closed).start(&runtime, ())).await;
    assert_eq!(error.message, "the transfer did not begin");
    assert_eq!(
        error.chain,
        ["the bank is closed", "no light in the window"]
    );
    // anyhow takes the stack only where it is asked to.
    let asked = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0")
        || std::env::var_os("RUST_LIB_BACKTRACE").is_some_and(|value| value != "0");
    assert_eq!(error.backtrace.is_some(), asked);
}

#[derive(Debug)]
struct Wrapped(ActionError);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[action(idempotent)]
async fn wraps() -> Result<(), Wrapped> {
    Err(Wrapped(ActionError::fatal("no such account")))
}

async fn a_fatal_error_deep_in_a_chain_is_not_retried(place: Place) {
    let runtime = only(&place, "wraps").await;
    runtime.spawn();
    let handle = milestone!(wraps).start(&runtime, ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    let OutcomeError::Failed { action, error, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((&*action, &*error.message), ("wraps", "wrapped"));
    assert_eq!(error.chain, ["no such account"]);
    assert_eq!(handle.record().await.unwrap().report.len(), 1);
}

#[action(idempotent)]
async fn any_wraps() -> anyhow::Result<()> {
    Err(Wrapped(ActionError::fatal("no such account"))).context("outermost")
}

async fn a_fatal_error_in_an_anyhow_chain_is_not_retried(place: Place) {
    let runtime = only(&place, "any_wraps").await;
    runtime.spawn();
    let handle = milestone!(any_wraps).start(&runtime, ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    let OutcomeError::Failed { error, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(error.message, "outermost");
    assert_eq!(error.chain, ["wrapped", "no such account"]);
}

#[action(idempotent, retry(max = 1))]
async fn asks() -> Result<(), ActionError> {
    let number: Result<u8, _> = "x".parse::<u8>();
    number.or_retry()?;
    Ok(())
}

async fn a_question_mark_notes_its_place(place: Place) {
    let runtime = only(&place, "asks").await;
    let (_, error) = newest(&runtime, milestone!(asks).start(&runtime, ())).await;
    assert!(error.kind.ends_with("ParseIntError"), "{error:?}");
    assert!(error.location.unwrap().contains("tests/panics.rs:"));
}

#[action(idempotent, retry(max = 1))]
async fn talks() -> Result<(), ActionError> {
    Err("ä".repeat(1 << 20).into())
}

async fn a_long_message_is_cut(place: Place) {
    let runtime = only(&place, "talks").await;
    let (_, error) = newest(&runtime, milestone!(talks).start(&runtime, ())).await;
    assert!(error.message.len() < 4096 + 64, "{}", error.message.len());
    assert!(
        error.message.ends_with("bytes cut]"),
        "{}",
        &error.message[4000..]
    );
}

async fn parameters_that_do_not_fit_are_fatal(place: Place) {
    let runtime = only(&place, "panics").await;
    runtime.spawn();
    let handle = runtime
        .start("panics", "panics", "no number")
        .await
        .unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert!(
        error.to_string().contains("the stored parameters"),
        "{error}"
    );
    assert!(error.to_string().contains("usize"), "{error}");
}
