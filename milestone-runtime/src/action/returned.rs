//! What an action returns, made into what is stored.

use std::{
    any::{Any, type_name},
    backtrace::BacktraceStatus,
    error::Error,
    time::Duration,
};

use bson::{Bson, Document};
use milestone_core::record::{AttemptError, AttemptKind};
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use serde::Serialize;

use super::{
    ActionError,
    stack::readable,
    strict::{Strict, Trail},
};
use crate::mongo::OnceError;

/// An attempt that failed: the error as it is stored, and what it asks for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Failure {
    /// The error, for people.
    pub error: Box<AttemptError>,
    /// What was special about it.
    pub kind: Option<AttemptKind>,
    /// Whether no retry would mend it.
    pub fatal: bool,
    /// The delay it asks for.
    pub retry_after: Option<Duration>,
    /// Whether it comes of an error after which a transaction is simply run again.
    pub(crate) transient: bool,
}

impl From<ActionError> for Failure {
    fn from(error: ActionError) -> Self {
        of_action_error(&error)
    }
}

/// What an action may return: a `Result`, or nothing.
#[diagnostic::on_unimplemented(
    message = "an action returns `Result<T, E>` or nothing, not `{Self}`",
    label = "not a `Result`",
    note = "an action that cannot fail may return `Result<T, std::convert::Infallible>`"
)]
pub trait Returned {
    /// What it gives when it succeeds.
    type Output;

    /// Makes it into what is stored.
    ///
    /// # Errors
    /// The failure, if it is one, or if BSON cannot hold the output.
    fn stored(self) -> Result<Bson, Failure>;
}

impl<T: Serialize, E: IntoFailure> Returned for Result<T, E> {
    type Output = T;

    fn stored(self) -> Result<Bson, Failure> {
        match self {
            Ok(output) => encode(&output),
            Err(error) => Err(error.into_failure()),
        }
    }
}

/// An action without a return type succeeds with null.
impl Returned for () {
    type Output = ();

    fn stored(self) -> Result<Bson, Failure> {
        Ok(Bson::Null)
    }
}

/// Whether an error is tried again: what a function says that `#[action(retry(when = f))]` names. It may return `bool` as well: `true` is
/// [`Retry::Again`], `false` is [`Retry::Never`].
///
/// ```standalone_crate
/// use milestone_runtime::prelude::*;
///
/// #[derive(Debug, thiserror::Error)]
/// enum BankError {
///     #[error("the account is closed")]
///     Closed,
///     #[error("the bank is busy")]
///     Busy,
/// }
///
/// impl BankError {
///     fn is_transient(&self) -> bool {
///         matches!(self, Self::Busy)
///     }
/// }
///
/// #[action(idempotent, retry(when = BankError::is_transient))]
/// async fn debit() -> Result<(), BankError> {
///     Err(BankError::Closed) // fatal: it is not tried again
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// As the action's options say.
    Again,
    /// After that time, whatever the options say of the wait.
    After(Duration),
    /// Never: the action has failed for good.
    Never,
    /// It leaves open whether the action took effect: see [`ActionError::in_doubt`].
    InDoubt,
}

impl From<bool> for Retry {
    fn from(again: bool) -> Self {
        if again { Self::Again } else { Self::Never }
    }
}

/// Makes what an action returned into what is stored, with its error told apart by `when`.
///
/// # Errors
/// The failure, if it is one, or if BSON cannot hold the output.
pub fn classified<T: Serialize, E: IntoFailure, R: Into<Retry>>(
    result: Result<T, E>,
    when: impl FnOnce(&E) -> R,
) -> Result<Bson, Failure> {
    match result {
        Ok(output) => encode(&output),
        Err(error) => {
            let retry = when(&error).into();
            let mut failure = error.into_failure();
            match retry {
                Retry::Again => {}
                Retry::After(delay) => failure.retry_after = Some(delay),
                Retry::Never => failure.fatal = true,
                Retry::InDoubt => failure.kind = Some(AttemptKind::Unclear),
            }
            Err(failure)
        }
    }
}

/// An error that an action may return: `anyhow::Error`, [`ActionError`], a string, and any other error that can be sent to another
/// thread.
///
/// One implementation does for all of them: `anyhow::Error` converts into a boxed error as well, and is found by its type before its
/// backtrace is lost.
#[diagnostic::on_unimplemented(
    message = "the error of an action cannot be `{Self}`",
    label = "not an error that an action may return",
    note = "it may be any `std::error::Error + Send + Sync`, `anyhow::Error`, `ActionError` or `String`"
)]
pub trait IntoFailure {
    /// Makes it into what is stored.
    fn into_failure(self) -> Failure;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn Error + Send + Sync>> + 'static> IntoFailure for E {
    fn into_failure(self) -> Failure {
        match (&self as &dyn Any).downcast_ref::<anyhow::Error>() {
            Some(error) => of_anyhow(error),
            None => boxed_failure(self),
        }
    }
}

/// Why a value cannot be stored.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", place.as_ref().map(|place| format!("at `{place}`: ")).unwrap_or_default())]
pub(crate) struct Unstorable {
    place: Option<String>,
    reason: String,
}

/// A value as it is stored. It goes by its bytes, since bson's other way takes a map such as `{ "$oid": ".." }` for extended JSON and makes
/// another value of it.
pub(crate) fn to_value<T: Serialize>(value: &T) -> Result<Bson, Unstorable> {
    #[derive(Serialize)]
    struct Wrapped<V> {
        value: V,
    }
    let trail = Trail::default();
    let strict = Strict::new(value, &trail);
    let read = bson::serialize_to_vec(&Wrapped { value: strict })
        .and_then(|bytes| Document::from_reader(bytes.as_slice()));
    let mut document = read.map_err(|error| Unstorable {
        place: trail.place(),
        reason: error.message.unwrap_or_else(|| error.kind.to_string()),
    })?;
    Ok(document.remove("value").unwrap_or(Bson::Null))
}

/// Makes an output into what is stored.
pub(crate) fn encode<T: Serialize>(output: &T) -> Result<Bson, Failure> {
    to_value(output).map_err(|error| Failure {
        error: Box::new(AttemptError {
            kind: "UnstorableOutput".to_owned(),
            message: format!(
                "BSON cannot hold its output of type `{}`: {error}",
                type_name::<T>()
            ),
            ..AttemptError::default()
        }),
        kind: Some(AttemptKind::Refused),
        fatal: true,
        ..Failure::default()
    })
}

/// The failure of a dynamically registered action.
pub(crate) fn boxed_failure<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Failure {
    let error = error.into();
    match error.downcast_ref::<ActionError>() {
        Some(error) => of_action_error(error),
        None => of_error(&*error, type_name::<E>()),
    }
}

fn of_action_error(error: &ActionError) -> Failure {
    let mut failure = of_error(error.get_ref(), error.type_name());
    heed(&mut failure, error);
    failure
}

fn of_anyhow(error: &anyhow::Error) -> Failure {
    let mut failure = of_error(error.as_ref(), "anyhow::Error");
    if failure.error.backtrace.is_none() && error.backtrace().status() == BacktraceStatus::Captured
    {
        failure.error.backtrace = Some(readable(&error.backtrace().to_string()));
    }
    failure
}

fn of_error(error: &(dyn Error + 'static), kind: &str) -> Failure {
    let mut failure = Failure {
        error: Box::new(AttemptError {
            kind: kind.to_owned(),
            message: error.to_string(),
            ..AttemptError::default()
        }),
        ..Failure::default()
    };
    let mut next = Some(error);
    let mut first = true;
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<mongodb::error::Error>() {
            failure.transient |= error.contains_label(TRANSIENT_TRANSACTION_ERROR);
        }
        if let Some(action_error) = error.downcast_ref::<ActionError>() {
            heed(&mut failure, action_error);
            next = Some(action_error.get_ref());
            continue;
        }
        if let Some(once) = error.downcast_ref::<OnceError>() {
            failure.fatal |= once.is_fatal();
            failure.retry_after = failure.retry_after.or(once.delay());
        }
        if !first {
            failure.error.chain.push(error.to_string());
        }
        first = false;
        next = error.source();
    }
    failure
}

/// The outermost `ActionError` decides.
fn heed(failure: &mut Failure, error: &ActionError) {
    failure.fatal |= error.is_fatal();
    if error.is_in_doubt() {
        failure.kind = Some(AttemptKind::Unclear);
    }
    failure.retry_after = failure.retry_after.or(error.delay());
    if failure.error.location.is_none() {
        failure.error.location = Some(error.location().to_string());
        failure.error.backtrace = Some(readable(&error.backtrace().to_string()));
    }
}
