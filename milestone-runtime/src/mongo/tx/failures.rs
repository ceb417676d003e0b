//! Why attempts of transactional actions fail, for people.

use std::time::Duration;

use milestone_core::record::{AttemptError, AttemptKind};
use mongodb::error::{Error, ErrorKind};

use crate::{
    action::Failure,
    store::{StoreError, mongodb::reason},
};

fn failure(kind: &str, message: String) -> Failure {
    Failure {
        error: Box::new(AttemptError {
            kind: kind.to_owned(),
            message,
            ..AttemptError::default()
        }),
        ..Failure::default()
    }
}

fn for_good(failure: Failure) -> Failure {
    Failure {
        fatal: true,
        kind: None,
        ..failure
    }
}

/// The transaction cannot be made, now.
pub(super) fn of_store(error: &StoreError) -> Failure {
    failure(
        "StoreError",
        format!("nothing took effect, since the transaction could not be made: {error}"),
    )
}

/// An operation of the runtime's own in the transaction.
pub(super) fn of_driver(error: &Error) -> Failure {
    failure(
        "mongodb::error::Error",
        format!("the transaction was not committed: {}", reason(error)),
    )
}

/// The body has seen an error, and returned none.
pub(super) fn went_on(error: &Error) -> Failure {
    let message = format!(
        "the body returned no error, but an operation of its transaction had one, so it was not committed: {}",
        reason(error)
    );
    let failure = failure("TransactionError", message);
    if is_of_another_client(error) {
        for_good(failure)
    } else {
        failure
    }
}

/// What a body returned after an operation of its transaction failed.
pub(super) fn of_body(mut failure: Failure, error: &Error) -> Failure {
    if is_of_another_client(error) {
        failure.fatal = true;
        failure.error.chain.push(
            "take the collection from `tx.collection(..)`, or give the runtime's builder the client of your collections by `.mongo_client(..)`"
                .to_owned(),
        );
    }
    failure
}

/// The server had aborted the transaction by the time that the body had ended, again and again.
pub(super) fn swallowed(error: &Error) -> Failure {
    let message = format!(
        "the server had aborted the transaction when its body ended, each time: either an error of an operation by `tx.session()` was not \
         returned (return it, or tell it by `tx.note(&error)`), or it took longer than the server lets a transaction live, which is 60 s by \
         default: {}",
        reason(error)
    );
    failure("TransactionError", message)
}

/// Others were there first, each time.
pub(super) fn out_of_patience(error: &Error, tries: u32, time: Duration) -> Failure {
    let message = format!(
        "the transaction was not committed: others came in between each of the {tries} times that it was run within {}: {}",
        humantime::format_duration(Duration::from_millis(
            u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
        )),
        reason(error)
    );
    failure("TransactionError", message)
}

pub(super) fn ended_by_itself() -> Failure {
    for_good(failure(
        "TransactionError",
        "the body committed or aborted its transaction by itself, so nobody can tell whether what it wrote is there: leave that to the \
         runtime, which commits if it returns `Ok`, and aborts if it returns an error"
            .to_owned(),
    ))
}

pub(super) fn lost() -> Failure {
    failure(
        "LeaseLost",
        "nothing took effect: in the database of the transaction, this worker does not hold the milestone. Another one has taken it over, or \
         the client that was given by `.mongo_client(..)` is of another cluster than the milestones"
            .to_owned(),
    )
}

pub(super) fn refused() -> Failure {
    for_good(failure(
        "Undone",
        "nothing took effect: the action has been undone in the meantime".to_owned(),
    ))
}

pub(super) fn cancelled(error: &Error) -> Failure {
    Failure {
        kind: Some(AttemptKind::Cancelled),
        ..failure(
            "Cancelled",
            format!(
                "the attempt was to stop before its transaction could be committed: {}",
                reason(error)
            ),
        )
    }
}

/// The commit was cut off with the executor that it ran on.
pub(super) fn cut_off() -> Failure {
    failure(
        "Cancelled",
        "the executor that actions run on is gone".to_owned(),
    )
}

/// An output that cannot be stored. Unlike those of other actions, it is known before anything takes effect.
pub(super) fn unstorable(reason: &str) -> Failure {
    for_good(failure(
        "UnstorableOutput",
        format!("nothing took effect, since {reason}"),
    ))
}

fn is_of_another_client(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::InvalidArgument { message, .. } if message.contains("same client"))
}
