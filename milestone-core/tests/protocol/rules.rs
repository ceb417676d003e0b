//! What must hold in every state and from one stored document to the next: the promises P2 to P4, that no command is overlooked, and
//! that what a worker believes is so.

use milestone_core::record::{ActionRecord, ActionState, Answer, MilestoneRecord, Status};

use crate::{
    pool::{Pool, name_of_command},
    state::{Held, State, Worker},
};

type Checked = Result<(), String>;

fn must(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// From what was stored to what is.
pub(crate) fn check_step(before: &MilestoneRecord, after: &MilestoneRecord) -> Checked {
    let numbers = |record: &MilestoneRecord| (record.epoch, record.rev, record.mail);
    let (old, new) = (numbers(before), numbers(after));
    must(new.0 >= old.0 && new.1 >= old.1 && new.2 >= old.2, || {
        format!("P4: epoch, rev and mail go back: {old:?}, then {new:?}")
    })?;
    must(
        !before.state.is_terminal() || before.state == Status::Failed || before == after,
        || format!("P1: it was {}, and changes", before.state),
    )?;
    let token = |record: &MilestoneRecord| record.lease.as_ref().map(|lease| lease.token.clone());
    must(
        token(after).is_none() || token(after) == token(before) || after.epoch == before.epoch + 1,
        || "P4: a lease without an epoch of its own".to_owned(),
    )?;
    for answer in &before.answers {
        must(after.answers.contains(answer), || {
            format!("the answer to the command {} is gone", answer.id)
        })?;
    }
    let said = resolved(after) > resolved(before);
    for (old, new) in before.actions.iter().zip(&after.actions) {
        check_action(old, new, said)?;
        if begun(new) > begun(old) {
            must(after.inbox.is_empty(), || {
                format!("`{}` begins, and a command is unread", new.name)
            })?;
            // What was on its way when the command came may begin only as the command allows it.
            let undoes = new.attempts == old.attempts;
            let heeded = after.hold.is_none() && (after.unwind.is_none() || undoes);
            must(before.inbox.is_empty() || heeded, || {
                format!("`{}` begins after a command that forbids it", new.name)
            })?;
            // The write that takes it may begin what may run twice.
            let takes = after.epoch > before.epoch;
            must(
                if takes {
                    new.mode.repeatable()
                } else {
                    before.lease.is_some()
                },
                || format!("`{}` begins, and nobody held the milestone", new.name),
            )?;
        }
    }
    Ok(())
}

/// How many attempts have begun, to do it and to undo it.
fn begun(action: &ActionRecord) -> i64 {
    action.attempts + action.undo.as_ref().map_or(0, |undo| undo.attempts)
}

/// How many commands have said that an action did not take effect.
pub(crate) fn resolved(record: &MilestoneRecord) -> usize {
    let said = |answer: &&Answer| answer.done && answer.message == "it did not take effect";
    record.answers.iter().filter(said).count()
}

/// `said`: somebody has said that an action did not take effect.
fn check_action(old: &ActionRecord, new: &ActionRecord, said: bool) -> Checked {
    let name = &new.name;
    let done = |action: &ActionRecord| (action.state, action.output.clone(), action.attempts);
    must(
        old.state != ActionState::Completed || done(old) == done(new),
        || format!("P2: `{name}` was complete, and changes"),
    )?;
    must(old.output.is_none() || old.output == new.output, || {
        format!("P2: the output of `{name}` changes")
    })?;
    must(
        new.attempts >= old.attempts && new.attempts <= old.attempts + 1,
        || format!("the attempts of `{name}` are not counted one by one"),
    )?;
    let again = matches!(
        (old.state, new.state),
        (
            ActionState::Running | ActionState::InDoubt,
            ActionState::Ready
        ) | (ActionState::InDoubt, ActionState::Running)
    );
    must(old.mode.repeatable() || !again || said, || {
        format!("P3: `{name}` is plain, and runs again without anybody's word")
    })
}

/// What is true of every state.
pub(crate) fn check_state(pool: &mut Pool, state: &State) -> Checked {
    let stored = pool.get(state.stored);
    let delivered = state.sent.iter().filter(|delivered| **delivered).count();
    for (which, _) in state.sent.iter().enumerate().filter(|(_, there)| **there) {
        let names = [name_of_command(which, false), name_of_command(which, true)];
        let inbox = stored.inbox.iter().map(|command| &command.id);
        let answers = stored.answers.iter().map(|answer| &answer.id);
        let count = inbox.chain(answers).filter(|id| names.contains(id)).count();
        must(count == 1, || {
            format!("the command {which} is there {count} times, unread or answered")
        })?;
    }
    must(usize::try_from(stored.mail) == Ok(delivered), || {
        format!("{delivered} commands were sent, and {} came", stored.mail)
    })?;
    for (at, worker) in state.workers.iter().enumerate() {
        if let Some(held) = &worker.held {
            check_held(pool, state, at, held)?;
        }
    }
    Ok(())
}

/// What a worker believes of its lease and of the document is so.
fn check_held(pool: &mut Pool, state: &State, at: usize, held: &Held) -> Checked {
    let lease = pool.lease(state.stored);
    let is_closing = pool.get(held.record).lease.is_none();
    let holds = lease.is_some_and(|(token, until)| token == held.token && until >= held.until);
    // Once its lease is over it believes nothing, and does nothing but ask.
    must(held.until <= 0 || is_closing || holds, || {
        format!(
            "P4: worker {} believes that it holds the milestone, and does not",
            at + 1
        )
    })?;
    let is_settled = held.in_flight.is_none() && held.pending.is_empty();
    let is_stored = lease.is_some_and(|(token, _)| token == held.token);
    must(
        !is_settled || !is_stored || pool.agree(held.record, state.stored),
        || {
            format!(
                "worker {} has another document in memory than is stored",
                at + 1
            )
        },
    )
}

/// Whether nothing is left to do, or somebody outside is waited for: the milestone has ended, or it is on hold or in doubt, nobody holds
/// it, and all that was sent to it is answered.
pub(crate) fn is_at_rest(pool: &Pool, state: &State) -> bool {
    let stored = pool.get(state.stored);
    let waits = stored.hold.is_some()
        || matches!(stored.state, Status::InDoubt)
        || (stored.state == Status::Undoing
            && stored
                .actions
                .iter()
                .any(|action| action.state == ActionState::InDoubt));
    (stored.state.is_terminal() || waits)
        && stored.lease.is_none()
        && stored.next.is_none()
        && stored.inbox.is_empty()
        && state.workers.iter().all(Worker::is_fresh)
}
