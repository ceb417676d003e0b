//! What must hold from one stored document to the next, whatever happens.

use bson::DateTime;
use milestone_runtime::{
    core::record::{
        ActionRecord, ActionState, Lease, MilestoneRecord, Status, UndoRecord, UndoState,
    },
    store::{Committed, Sent},
};

use super::court::Write;

/// A write has changed nothing: whether its answer says so.
pub(crate) fn nothing(record: &MilestoneRecord, write: &Write<'_>) -> Option<String> {
    match write {
        Write::Claim(_) => Some("a claim gave it and changed nothing".to_owned()),
        Write::Commit(commit, Committed::Done) => {
            // Under a token only its worker writes, so the next `rev` is the doing of an earlier copy.
            let earlier = record.rev == commit.rev + 1
                && (token(record) == Some(&commit.token)
                    || (record.lease.is_none() && commit.patch.releases()));
            (!earlier).then(|| {
                format!(
                    "a commit for rev {} changed nothing and is done",
                    commit.rev
                )
            })
        }
        Write::Send(command, Sent::Delivered) => {
            let there = record.inbox.iter().any(|other| other.id == command.id)
                || record.answers.iter().any(|answer| answer.id == command.id);
            (!there).then(|| "a command is delivered and not there".to_owned())
        }
        _ => None,
    }
}

/// Everything that is wrong with a change.
pub(crate) fn step(
    before: Option<&MilestoneRecord>,
    after: &MilestoneRecord,
    write: &Write<'_>,
    now: DateTime,
) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    let Some(before) = before else {
        wrong.unless(matches!(write, Write::Insert), || {
            "it came from nowhere".to_owned()
        });
        return wrong.0;
    };
    check_write(before, after, write, now, &mut wrong);
    check_milestone(before, after, &mut wrong);
    for (old, new) in before.actions.iter().zip(&after.actions) {
        check_action(old, new, &mut wrong);
    }
    check_order_of_undoing(before, after, &mut wrong);
    wrong.0
}

struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.0.push(what());
        }
    }
}

fn token(record: &MilestoneRecord) -> Option<&String> {
    record.lease.as_ref().map(|lease| &lease.token)
}

/// Whether that call may have made that change.
fn check_write(
    before: &MilestoneRecord,
    after: &MilestoneRecord,
    write: &Write<'_>,
    now: DateTime,
    wrong: &mut Wrong,
) {
    match write {
        Write::Insert => wrong.unless(false, || "a second insert changed it".to_owned()),
        Write::Claim(request) => {
            let lives = |lease: &Lease| lease.until > now;
            wrong.unless(!before.lease.as_ref().is_some_and(lives), || {
                format!("a lease that lives was taken: {:?}", before.lease)
            });
            wrong.unless(
                token(after) == Some(&request.token)
                    && after.epoch == before.epoch + 1
                    && after.rev == before.rev + 1,
                || "a claim gave no new token, epoch and rev".to_owned(),
            );
        }
        Write::Commit(commit, told) => {
            wrong.unless(matches!(told, Committed::Done), || {
                format!("a commit changed it, and the answer is {told:?}")
            });
            wrong.unless(token(before) == Some(&commit.token), || {
                "somebody wrote who does not hold it".to_owned()
            });
            wrong.unless(
                before.rev == commit.rev && after.rev == commit.rev + 1,
                || format!("a commit for rev {} found {}", commit.rev, before.rev),
            );
            wrong.unless(
                commit.patch.mail().is_none_or(|mail| mail == before.mail),
                || "a commit overlooked a command".to_owned(),
            );
            wrong.unless(after.lease.is_none() || after.lease == before.lease, || {
                "a commit changed the lease".to_owned()
            });
        }
        Write::Renew(request, lost) => {
            let held = request
                .holds
                .iter()
                .find(|(id, _)| *id == before.id)
                .map(|(_, token)| token);
            wrong.unless(!lost && held == token(before), || {
                "a renewal changed what is another's".to_owned()
            });
            let until = |record: &MilestoneRecord| record.lease.as_ref().map(|lease| lease.until);
            wrong.unless(until(after) >= until(before), || {
                "a renewal cut the lease".to_owned()
            });
            let unchanged = MilestoneRecord {
                lease: before.lease.clone(),
                next: before.next.clone(),
                due: before.due.clone(),
                ..after.clone()
            };
            wrong.unless(unchanged == *before, || {
                "a renewal changed more than the lease".to_owned()
            });
        }
        Write::Send(command, sent) => {
            wrong.unless(
                *sent == Sent::Delivered
                    && after.mail == before.mail + 1
                    && after.rev == before.rev,
                || format!("a command changed it, and the answer is {sent:?}"),
            );
            wrong.unless(
                !before.answers.iter().any(|answer| answer.id == command.id)
                    && !before.inbox.iter().any(|other| other.id == command.id),
                || "a command came twice".to_owned(),
            );
        }
    }
}

fn check_milestone(before: &MilestoneRecord, after: &MilestoneRecord, wrong: &mut Wrong) {
    wrong.unless(
        after.epoch >= before.epoch && after.rev >= before.rev && after.mail >= before.mail,
        || "epoch, rev or mail shrank".to_owned(),
    );
    wrong.unless(
        (&before.id, &before.kind, &before.parameters)
            == (&after.id, &after.kind, &after.parameters),
        || "it is another one".to_owned(),
    );
    wrong.unless(
        before.unwind.is_none() || before.unwind == after.unwind,
        || "it is no longer undone".to_owned(),
    );
    wrong.unless(
        !before.state.is_terminal()
            || before.state == Status::Failed
            || before.state == after.state,
        || format!("{} is final, and is {}", before.state, after.state),
    );
    let mut answers: Vec<&String> = after.answers.iter().map(|answer| &answer.id).collect();
    answers.sort();
    let all = answers.len();
    answers.dedup();
    wrong.unless(answers.len() == all, || {
        "a command was answered twice".to_owned()
    });
}

fn check_action(old: &ActionRecord, new: &ActionRecord, wrong: &mut Wrong) {
    let name = &new.name;
    if old.state == ActionState::Completed {
        wrong.unless(
            (new.state, &new.output, new.attempts) == (old.state, &old.output, old.attempts),
            || format!("`{name}` was complete, and changed"),
        );
    }
    wrong.unless(
        new.attempts == old.attempts || new.attempts == old.attempts + 1,
        || {
            format!(
                "`{name}` had {} attempts, and has {}",
                old.attempts, new.attempts
            )
        },
    );
    let (Some(old), Some(new)) = (&old.undo, &new.undo) else {
        return;
    };
    wrong.unless(!is_over(old) || is_over(new), || {
        format!("the undo of `{name}` was over, and changed")
    });
}

fn is_over(undo: &UndoRecord) -> bool {
    matches!(undo.state, UndoState::Done | UndoState::Waived)
}

/// Nothing is undone while something that came after it is not.
fn check_order_of_undoing(before: &MilestoneRecord, after: &MilestoneRecord, wrong: &mut Wrong) {
    let attempts = |action: &ActionRecord| action.undo.as_ref().map_or(0, |undo| undo.attempts);
    for (index, (old, new)) in before.actions.iter().zip(&after.actions).enumerate() {
        if attempts(new) <= attempts(old) {
            continue;
        }
        for (later, action) in after.actions.iter().enumerate() {
            if after.ancestors(later)[index] && action.attempts > 0 {
                let settled = match &action.undo {
                    Some(undo) => is_over(undo),
                    None => !matches!(action.state, ActionState::Running | ActionState::InDoubt),
                };
                wrong.unless(settled, || {
                    format!("`{}` is undone before `{}`", new.name, action.name)
                });
            }
        }
    }
}
