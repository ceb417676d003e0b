//! One attempt of a transactional action: its body in a transaction, until that is committed or the action has failed.

use std::{sync::atomic::Ordering, time::Instant};

use bson::{Bson, RawDocumentBuf, doc};
use milestone_core::{
    limits::{LimitError, check_value},
    patch::size_of_value,
    record::{AttemptKind, Phase},
};
use mongodb::{
    ClientSession,
    error::{Error, ErrorKind},
};

use super::{
    Body, Tx,
    commit::{Commit, commit},
    failures,
    ground::Ground,
    handle::is_transient,
    patience::{Patience, Why},
    sessions,
};
use crate::{
    action::{Call, Failure},
    store::mongodb::{Outcome, is_away, is_duplicate_key, is_write_conflict, outcome_of},
};

/// How one run of the body has ended.
enum Turn {
    Done(Bson),
    Failed(Failure),
    Again(Why),
}

/// Runs an attempt.
pub(super) async fn run(call: &Call, body: &Body) -> Result<Bson, Failure> {
    let context = call.context();
    context.begin_transaction();
    let ground = Ground::of(context).await?;
    sessions::end_those_before(context).await?;
    let mut patience = Patience::default();
    // A transaction of an earlier attempt, or of an earlier turn that came to its commit, may have been committed, or still be on its way.
    let mut is_repeated = context.attempt() > 1;
    loop {
        let turn = turn(&ground, call, body, is_repeated).await;
        is_repeated |= ground.commits.load(Ordering::Relaxed);
        let failed = match turn {
            Turn::Done(output) => return Ok(output),
            Turn::Failed(failure) => Err(failure),
            Turn::Again(why) => patience
                .after(&why, Instant::now(), fastrand::f64())
                .map(|wait| (why, wait)),
        };
        let (why, wait) = match failed {
            Ok(again) => again,
            Err(failure) if is_repeated => return found_or_failed(&ground, failure).await,
            Err(failure) => return Err(failure),
        };
        tracing::debug!(milestone = %context.milestone_id(), action = context.action(), error = %why.error(), ?wait, "a transaction is run again");
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = context.cancelled() => return Err(failures::cancelled(why.error())),
        }
    }
}

fn result_of(outcome: Outcome) -> Result<Bson, Failure> {
    match outcome {
        Outcome::Committed(output) => Ok(output),
        Outcome::Refused => Err(failures::refused()),
    }
}

async fn turn(ground: &Ground<'_>, call: &Call, body: &Body, is_repeated: bool) -> Turn {
    let mut session = match begin(ground).await {
        Ok(session) => session,
        Err(turn) => return turn,
    };
    match holds(ground, &mut session).await {
        Ok(true) => {}
        Ok(false) => return abort(session, Turn::Failed(failures::lost())).await,
        Err(error) => return abort(session, after(error)).await,
    }
    if is_repeated {
        match settled(ground, &mut session).await {
            Ok(None) => {}
            Ok(Some(turn)) => return abort(session, turn).await,
            Err(error) => return abort(session, after(error)).await,
        }
    }
    let mut tx = Tx::new(session, ground.database.clone());
    let result = body(call, &mut tx).await;
    let Tx {
        mut session, seen, ..
    } = tx;
    let output = match judge(ground, call, result, seen) {
        Ok(output) => output,
        Err(turn) => return abort(session, turn).await,
    };
    if has_ended(&mut session).await {
        return Turn::Failed(failures::ended_by_itself());
    }
    if let Err(error) = witness(ground, &mut session, &output).await {
        let turn = collided(ground, error).await;
        return abort(session, turn).await;
    }
    ground.left();
    ground.commits.store(true, Ordering::Relaxed);
    let committing = commit(session, context_call(ground));
    let committed = ground.context.shared().application.spawn(committing).await;
    match committed {
        Ok(Commit::Done) => Turn::Done(output),
        Ok(Commit::Refused(error)) => found_or(ground, after(error)).await,
        Ok(Commit::Unknown(error)) => found_or(ground, Turn::Again(why(error))).await,
        Err(_) => Turn::Failed(failures::cut_off()),
    }
}

fn context_call(ground: &Ground<'_>) -> crate::engine::hold::CallGuard {
    ground.context.hold().call()
}

async fn begin(ground: &Ground<'_>) -> Result<ClientSession, Turn> {
    let mut session = ground.client.start_session().await.map_err(after)?;
    sessions::note(ground, &session)
        .await
        .map_err(Turn::Failed)?;
    let begun = session
        .start_transaction()
        .with_options(ground.options.clone());
    begun.await.map_err(not_begun)?;
    Ok(session)
}

/// The driver has not sent anything. That there are no transactions here is what it says of a server that it has just lost as well, and
/// `build()` has seen that there are.
fn not_begun(error: Error) -> Turn {
    match *error.kind {
        ErrorKind::Transaction { .. } => Turn::Again(Why::Conflict(error)),
        _ => after(error),
    }
}

/// Whether the milestone is this worker's, in the transaction's snapshot. Whoever has lost it need not begin.
async fn holds(ground: &Ground<'_>, session: &mut ClientSession) -> Result<bool, Error> {
    let context = ground.context;
    let held =
        doc! { "_id": context.milestone_id().clone(), "lease.token": context.hold().token() };
    let found = ground
        .milestones
        .find_one(held)
        .projection(doc! { "_id": 1 })
        .session(session)
        .await?;
    Ok(found.is_some())
}

/// What became of the transaction of an earlier attempt or turn, in the transaction's snapshot: there its effects and its witness are seen
/// together or not at all, so no body is run that would take them for another's.
async fn settled(ground: &Ground<'_>, session: &mut ClientSession) -> Result<Option<Turn>, Error> {
    let key = doc! { "_id": ground.key.to_bson() };
    let Some(witness) = ground.witnesses.find_one(key).session(session).await? else {
        return Ok(None);
    };
    ground.left();
    Ok(Some(match outcome_of(&witness) {
        Ok(outcome) => result_of(outcome).map_or_else(Turn::Failed, Turn::Done),
        Err(error) => Turn::Failed(failures::of_store(&error)),
    }))
}

/// What is to be committed, if anything is.
fn judge(
    ground: &Ground<'_>,
    call: &Call,
    result: Result<Bson, Failure>,
    seen: Option<Error>,
) -> Result<Bson, Turn> {
    if let Some(error) = seen {
        return Err(match result {
            _ if is_transient(&error) => Turn::Again(why(error)),
            Ok(_) => Turn::Failed(failures::went_on(&error)),
            Err(failure) => Turn::Failed(failures::of_body(failure, &error)),
        });
    }
    let is_undo = ground.context.phase() == Phase::Undo;
    match result {
        // What an undo gives is not kept.
        Ok(_) if is_undo => Ok(Bson::Null),
        Err(failure) if is_undo && failure.kind == Some(AttemptKind::Refused) => Ok(Bson::Null),
        Ok(output) => match check(call, &output) {
            Ok(()) => Ok(output),
            Err(limit) => Err(Turn::Failed(failures::unstorable(&limit.to_string()))),
        },
        Err(failure) if failure.kind == Some(AttemptKind::Refused) => {
            Err(Turn::Failed(failures::unstorable(&failure.error.message)))
        }
        Err(failure) if failure.transient => Err(Turn::Again(Why::Conflict(Error::custom(
            failure.error.message,
        )))),
        Err(failure) => Err(Turn::Failed(failure)),
    }
}

/// Whether the milestone can hold the output, as far as is known by now.
fn check(call: &Call, output: &Bson) -> Result<(), LimitError> {
    let context = call.context();
    let limits = &context.shared().config.limits;
    let what = format!("the output of `{}`", context.action());
    check_value(&what, output, limits.output, "output")?;
    let (size, room) = (size_of_value(output), call.inner().room);
    if size > room {
        return Err(LimitError::Size {
            what: format!("the document with {what}"),
            size: limits.document.saturating_sub(room) + size,
            limit: limits.document,
            limit_name: "document",
        });
    }
    Ok(())
}

/// Whether the body has committed or aborted by itself. The driver tells it only by whether it would begin another transaction, which costs
/// no call.
async fn has_ended(session: &mut ClientSession) -> bool {
    let begun = session.start_transaction().await;
    !matches!(begun, Err(error) if matches!(*error.kind, ErrorKind::Transaction { .. }))
}

async fn witness(
    ground: &Ground<'_>,
    session: &mut ClientSession,
    output: &Bson,
) -> Result<(), Error> {
    let context = ground.context;
    let witness = doc! {
        "_id": ground.key.to_bson(),
        "output": output.clone(),
        "at": context.shared().clock.now(),
        "worker": context.worker(),
        "attempt": context.attempt(),
    };
    let witness = RawDocumentBuf::try_from(&witness).map_err(Error::custom)?;
    let inserted = ground.witnesses.insert_one(witness).session(session);
    inserted.await.map(|_| ())
}

/// The witness could not be written: another attempt was committed, or the transaction is gone.
async fn collided(ground: &Ground<'_>, error: Error) -> Turn {
    if is_duplicate_key(&error) || is_write_conflict(&error) {
        return found_or(ground, Turn::Again(Why::Conflict(error))).await;
    }
    if is_transient(&error) && !is_away(&error) {
        return Turn::Again(Why::Gone(error));
    }
    after(error)
}

/// What the witness says or, if there is none, something else.
async fn found_or(ground: &Ground<'_>, other: Turn) -> Turn {
    match ground.outcome().await {
        Ok(None) => other,
        Ok(Some(outcome)) => {
            ground.left();
            result_of(outcome).map_or_else(Turn::Failed, Turn::Done)
        }
        Err(failure) => Turn::Failed(failure),
    }
}

/// What the witness says or, if there is none, a failure: a transaction that came before may have been committed since this one began.
async fn found_or_failed(ground: &Ground<'_>, failure: Failure) -> Result<Bson, Failure> {
    match ground.outcome().await? {
        Some(outcome) => {
            ground.left();
            result_of(outcome)
        }
        None => Err(failure),
    }
}

/// After an error of the runtime's own operations.
fn after(error: Error) -> Turn {
    if is_transient(&error) || is_away(&error) {
        Turn::Again(why(error))
    } else {
        Turn::Failed(failures::of_driver(&error))
    }
}

fn why(error: Error) -> Why {
    if is_away(&error) {
        Why::Away(error)
    } else {
        Why::Conflict(error)
    }
}

/// Ends a transaction, so that others need not wait for what it has touched. It fails where there is none any more.
async fn abort(mut session: ClientSession, turn: Turn) -> Turn {
    if let Err(error) = session.abort_transaction().await {
        tracing::debug!(%error, "a transaction cannot be aborted; it ends by itself");
    }
    turn
}
