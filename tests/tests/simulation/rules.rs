//! What must hold from one stored document to the next, whatever happens.

use bson::DateTime;
use milestone_core::lease::{PARKED_FROM, SUSPECT_FROM};
use milestone_runtime::{
    core::record::{
        ActionRecord, ActionState, Command, Lease, MilestoneRecord, Order, Phase, Status,
        UndoRecord, UndoState, Unwind,
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
        check_doubt(before, after, old, new, &mut wrong);
        check_begins(after, old, new, &mut wrong);
    }
    check_losses(before, after, write, &mut wrong);
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
            let begun = before.actions.iter().zip(&after.actions);
            let mut begun = begun.filter(|(before, after)| after.attempts > before.attempts);
            let may_begin = before.inbox.is_empty() && !before.is_suspect();
            wrong.unless(
                begun.all(|(before, _)| may_begin && before.mode.repeatable()),
                || "a claim began what is to be looked at first".to_owned(),
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
    // What has failed by its deadline may be tried again, as all that has failed.
    let is_tried_again = before.state == Status::Failed && after.unwind.is_none();
    // What completes it after its deadline counts.
    let is_completed =
        after.state == Status::Completed && before.unwind.as_ref().is_some_and(Unwind::is_overdue);
    wrong.unless(
        before.unwind.is_none() || before.unwind == after.unwind || is_tried_again || is_completed,
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

/// An attempt in doubt is settled by a verify or by somebody's word, and by nothing else.
fn check_doubt(
    before: &MilestoneRecord,
    after: &MilestoneRecord,
    old: &ActionRecord,
    new: &ActionRecord,
    wrong: &mut Wrong,
) {
    let name = &new.name;
    if old.state != ActionState::InDoubt
        || (new.state == ActionState::InDoubt && new.attempts == old.attempts)
    {
        return;
    }
    let verified = |record: &MilestoneRecord| {
        let of_it = record.report.iter().filter(|attempt| {
            attempt.action == *name
                && attempt.phase == Phase::Verify
                && attempt.success == Some(true)
        });
        of_it.count()
    };
    let resolved = after.answers.iter().any(|answer| {
        let is_new = !before.answers.iter().any(|known| known.id == answer.id);
        is_new && answer.done && answer.order == "resolve"
    });
    wrong.unless(resolved || verified(after) > verified(before), || {
        format!("`{name}` was in doubt, and is {:?}", new.state)
    });
}

/// What begins, may: nothing but a look and an undo after the deadline, a look only once the doubt has settled, and nothing that is parked.
fn check_begins(
    after: &MilestoneRecord,
    old: &ActionRecord,
    new: &ActionRecord,
    wrong: &mut Wrong,
) {
    for phase in Phase::ALL {
        let attempts =
            |action: &ActionRecord| action.tries(phase).map_or(0, |tries| tries.attempts);
        let Some(running) = new.running_in(phase) else {
            continue;
        };
        if attempts(new) == attempts(old) {
            continue;
        }
        let what = format!("attempt {} ({phase:?}) of `{}`", running.number, new.name);
        wrong.unless(after.losses < PARKED_FROM, || {
            format!("{what} begins after {} losses", after.losses)
        });
        let in_time = after
            .deadline
            .is_none_or(|deadline| running.begin_date < deadline);
        wrong.unless(phase != Phase::Do || in_time, || {
            format!(
                "{what} begins at {}, the deadline is {:?}",
                running.begin_date, after.deadline
            )
        });
        let settled = new.state == ActionState::InDoubt
            && new
                .settle_after
                .is_some_and(|settled| settled <= running.begin_date);
        wrong.unless(phase != Phase::Verify || settled, || {
            format!(
                "{what} begins at {}, while it is {:?} and settled after {:?}",
                running.begin_date, new.state, new.settle_after
            )
        });
    }
}

/// Losses are counted by claims; who has lost too many is parked, and a parked one is due for nothing but its mail.
fn check_losses(
    before: &MilestoneRecord,
    after: &MilestoneRecord,
    write: &Write<'_>,
    wrong: &mut Wrong,
) {
    let ran = before.lease.is_some() && before.actions.iter().any(ActionRecord::is_running);
    let resumed = before.losses >= PARKED_FROM && after.losses == SUSPECT_FROM;
    let right = match write {
        Write::Claim(_) => after.losses == before.losses + i64::from(ran),
        Write::Commit(..) => after.losses == before.losses || after.losses == 0 || resumed,
        _ => after.losses == before.losses,
    };
    wrong.unless(right, || {
        format!("{} losses became {}", before.losses, after.losses)
    });
    // The claim that counts the last one is followed by the commit that parks.
    let is_claimed = matches!(write, Write::Claim(_) | Write::Renew(..) | Write::Send(..));
    let ended = after.state.is_terminal();
    wrong.unless(
        is_claimed || ended || after.losses < PARKED_FROM || after.hold.is_some(),
        || format!("{} losses, and it is not parked", after.losses),
    );
    if is_parked(after) {
        wrong.unless(after.losses >= PARKED_FROM || after.losses == 0, || {
            format!("it is parked after {} losses", after.losses)
        });
        let is_due = after.next.is_some() || !after.due.is_empty();
        wrong.unless(
            after.lease.is_some() || !after.inbox.is_empty() || !is_due,
            || format!("it is parked, and due at {:?}", after.next),
        );
    }
}

/// Whether it is on hold since it has killed too many.
pub(crate) fn is_parked(record: &MilestoneRecord) -> bool {
    let hold = record.hold.as_ref();
    hold.is_some_and(|hold| hold.by == "milestone")
}

/// Whether it is the result of an attempt that came too late for its lease.
pub(crate) fn is_late(command: &Command) -> bool {
    let Order::Resolve { output, .. } = &command.order else {
        return false;
    };
    let output = output.as_document();
    output.is_none_or(|output| !output.contains_key("resolved"))
}

/// What is wrong with a late result.
pub(crate) fn late(record: &MilestoneRecord, command: &Command) -> Option<String> {
    let Order::Resolve {
        action,
        attempt,
        applied,
        output,
    } = &command.order
    else {
        return None;
    };
    let Some((_, of)) = record.action(action) else {
        return Some(format!("a late result of `{action}`, which there is not"));
    };
    if of.mode.repeatable() {
        return Some(format!("a late result of `{action}`, which is repeatable"));
    }
    let number = output
        .as_document()
        .and_then(|output| output.get_i64("attempt").ok());
    (!applied || attempt.is_none() || *attempt != number).then(|| {
        format!("a late result of attempt {attempt:?} of `{action}` that says {applied}: {output}")
    })
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
