//! What is true of every stored milestone, whatever happened. Tests walk whole collections with it, and so can operators.

use super::{propagate::status_of, undo::blocked};
use crate::record::{ActionKind, ActionState, MilestoneRecord, UndoState};

/// Something that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("milestone {id}: {what}")]
pub struct Violation {
    /// The milestone.
    pub id: String,
    /// What is wrong with it.
    pub what: String,
}

/// Everything that is wrong with a milestone; nothing, if the robot is right.
#[must_use]
pub fn check(record: &MilestoneRecord) -> Vec<Violation> {
    let mut found = Vec::new();
    check_actions(record, &mut found);
    check_undo(record, &mut found);
    check_whole(record, &mut found);
    let id = record.id.to_string();
    found
        .into_iter()
        .map(|what| Violation {
            id: id.clone(),
            what,
        })
        .collect()
}

fn check_actions(record: &MilestoneRecord, found: &mut Vec<String>) {
    for (index, action) in record.actions.iter().enumerate() {
        let name = &action.name;
        let state = action.state;
        if (state == ActionState::Running) != action.running.is_some() {
            found.push(format!(
                "`{name}` is {state:?}, but its running attempt says otherwise"
            ));
        }
        if let Some(running) = &action.running
            && running.number != action.attempts
        {
            found.push(format!(
                "`{name}` runs attempt {} of {}",
                running.number, action.attempts
            ));
        }
        if (state == ActionState::Completed && action.kind == ActionKind::Action)
            != action.output.is_some()
        {
            found.push(format!(
                "`{name}` is {state:?}, but its output says otherwise"
            ));
        }
        if state == ActionState::Backoff && action.at.is_none() {
            found.push(format!("`{name}` waits for its retry, but not for a time"));
        }
        if action.kind == ActionKind::Fork && (action.method.is_some() || action.attempts > 0) {
            found.push(format!("the fork `{name}` has run"));
        }
        let before = || {
            action
                .after
                .iter()
                .map(|after| &record.actions[*after as usize])
        };
        if action.attempts > 0 && before().any(|other| other.state != ActionState::Completed) {
            found.push(format!("`{name}` has begun before all that it waits for"));
        }
        let turn = before().all(|other| other.state == ActionState::Completed);
        if record.unwind.is_none() && turn == (state == ActionState::Pending) {
            found.push(format!("action {index} `{name}` is {state:?} although all before it are complete, or the other way round"));
        }
        let reported = record
            .report
            .iter()
            .filter(|attempt| attempt.action == *name && attempt.phase.is_do_attempt())
            .count();
        let ended = action.attempts - i64::from(action.running.is_some());
        if i64::try_from(reported).unwrap_or(i64::MAX) > ended
            || (record.report_dropped == 0 && i64::try_from(reported).unwrap_or(0) != ended)
        {
            found.push(format!(
                "`{name}` has {ended} ended attempts, the report has {reported}"
            ));
        }
    }
}

fn check_undo(record: &MilestoneRecord, found: &mut Vec<String>) {
    let blocked = blocked(record);
    for (index, action) in record.actions.iter().enumerate() {
        let Some(undo) = &action.undo else { continue };
        let name = &action.name;
        if (undo.state == UndoState::Running) != undo.running.is_some() {
            found.push(format!(
                "the undo of `{name}` is {:?}, but its running attempt says otherwise",
                undo.state
            ));
        }
        if undo.attempts > 0 && record.unwind.is_none() {
            found.push(format!(
                "`{name}` is being undone, but the milestone is not"
            ));
        }
        if undo.attempts > 0 && blocked[index] {
            found.push(format!("`{name}` is undone before what came after it"));
        }
    }
}

fn check_whole(record: &MilestoneRecord, found: &mut Vec<String>) {
    let status = status_of(record);
    if record.state != status {
        found.push(format!(
            "its state is {}, its actions say {status}",
            record.state
        ));
    }
    if record.state.is_terminal() {
        if record.lease.is_some() {
            found.push("it has ended, and is held".to_owned());
        }
        // A failed one with mail waits for a worker to read it.
        let mail = !record.inbox.is_empty();
        if !mail && (!record.due.is_empty() || record.next.is_some()) {
            found.push("it has ended, and is due".to_owned());
        }
    }
    if record.state.is_terminal() != record.end_date.is_some() {
        found.push(format!(
            "it is {}, and its endDate says otherwise",
            record.state
        ));
    }
    let runs = record.actions.iter().any(|action| {
        action.running.is_some()
            || action
                .undo
                .as_ref()
                .is_some_and(|undo| undo.running.is_some())
    });
    match &record.lease {
        None if runs => found.push("an attempt runs, and nobody holds it".to_owned()),
        Some(lease) => {
            let due = matches!(record.due.as_slice(), [due] if due.method.is_empty());
            if !due
                || record
                    .next
                    .as_ref()
                    .is_none_or(|next| next.at < lease.until)
            {
                found
                    .push("it is held, and its due entries are not those of a held one".to_owned());
            }
        }
        None => {}
    }
    if record.due.is_empty() != record.next.is_none() {
        found.push("`due` and `next` do not agree".to_owned());
    }
    if runs && record.begin_date.is_none() {
        found.push("an attempt runs, and it has not begun".to_owned());
    }
    if record
        .begin_date
        .is_some_and(|begin| begin < record.created_at)
        || record.end_date.is_some_and(|end| end < record.created_at)
    {
        found.push("its dates are not in order".to_owned());
    }
}
