//! What is true of every stored milestone, whatever happened. Tests walk whole collections with it, and so can operators.

use super::{
    propagate::status_of,
    schedule::{due_tasks, schedule},
    undo::{blocked, can_be_undone},
};
use crate::record::{
    ActionKind, ActionRecord, ActionState, MilestoneRecord, Phase, Running, Status, UndoState,
    VerifyState,
};

/// Something that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("milestone {id}: {what}")]
pub struct Violation {
    /// The milestone.
    pub id: String,
    /// What is wrong with it.
    pub what: String,
}

/// Everything that is wrong with a milestone as it is stored, or as it stands after an event; nothing, if the robot is right.
///
/// ```
/// # use milestone_core::{graph::{Plan, PlannedAction}, limits::Limits, machine::{NewMilestone, check}, options::Mode, record::MilestoneRecord};
/// # let plan = Plan::new(vec![PlannedAction::new("debit", Mode::Plain)]).unwrap();
/// # let now = bson::DateTime::from_millis(0);
/// let mut record = MilestoneRecord::new(NewMilestone::new("Transfer", plan), now, &Limits::new()).unwrap();
/// assert!(check(&record).is_empty());
/// record.due.clear();
/// record.next = None;
/// assert_eq!(check(&record)[0].what, "`debit` can run, and nobody is told that it is due");
/// ```
#[must_use]
pub fn check(record: &MilestoneRecord) -> Vec<Violation> {
    let mut found = Vec::new();
    for index in 0..record.actions.len() {
        check_action(record, index, &mut found);
        check_turn(record, index, &mut found);
        check_report(record, &record.actions[index], &mut found);
    }
    check_undo(record, &mut found);
    check_verify(record, &mut found);
    check_end(record, &mut found);
    check_lease(record, &mut found);
    check_dates(record, &mut found);
    let id = record.id.to_string();
    found
        .into_iter()
        .map(|what| Violation {
            id: id.clone(),
            what,
        })
        .collect()
}

/// The fields of one action agree.
fn check_action(record: &MilestoneRecord, index: usize, found: &mut Vec<String>) {
    let action = &record.actions[index];
    let (name, state) = (&action.name, action.state);
    let mut must = |agree: bool, what: &str| {
        if !agree {
            found.push(format!(
                "`{name}` is {state:?}, but its {what} says otherwise"
            ));
        }
    };
    must(
        (state == ActionState::Running) == action.running.is_some(),
        "running attempt",
    );
    must(
        (state == ActionState::Completed && action.kind == ActionKind::Action)
            == action.output.is_some(),
        "output",
    );
    must(
        (state == ActionState::Backoff) == action.at.is_some(),
        "`at`",
    );
    must(
        (state == ActionState::InDoubt) == action.settle_after.is_some(),
        "`settleAfter`",
    );
    let begun = matches!(
        state,
        ActionState::Running | ActionState::Backoff | ActionState::InDoubt | ActionState::Failed
    ) || (state == ActionState::Completed && action.kind == ActionKind::Action);
    must(!begun || action.attempts > 0, "number of attempts");
    must(
        !matches!(state, ActionState::Pending | ActionState::Skipped) || action.attempts == 0,
        "number of attempts",
    );
    check_running(
        record,
        name,
        action.running.as_ref(),
        action.attempts,
        found,
    );
    if action.kind == ActionKind::Fork && (action.method.is_some() || action.attempts > 0) {
        found.push(format!("the fork `{name}` has run"));
    }
    if action.failures > action.attempts {
        found.push(format!("`{name}` has failed more often than it began"));
    }
}

fn check_running(
    record: &MilestoneRecord,
    name: &str,
    running: Option<&Running>,
    attempts: i64,
    found: &mut Vec<String>,
) {
    let Some(running) = running else { return };
    if running.number != attempts {
        found.push(format!(
            "`{name}` runs attempt {} of {attempts}",
            running.number
        ));
    }
    if running.epoch > record.epoch || running.epoch < 1 {
        found.push(format!(
            "`{name}` runs since epoch {} of {}",
            running.epoch, record.epoch
        ));
    }
}

/// An action has begun, waits or is skipped as those before it say.
fn check_turn(record: &MilestoneRecord, index: usize, found: &mut Vec<String>) {
    let action = &record.actions[index];
    let (name, state) = (&action.name, action.state);
    let (mut turn, mut stopped) = (true, false);
    for before in &action.after {
        let before = record.actions[*before as usize].state;
        turn &= before == ActionState::Completed;
        stopped |= matches!(before, ActionState::Failed | ActionState::Skipped);
    }
    let begun = !matches!(state, ActionState::Pending | ActionState::Skipped);
    if begun && !turn {
        found.push(format!("`{name}` has begun before all that it waits for"));
    }
    if record.unwind.is_none() {
        let right = match state {
            ActionState::Pending => !turn && !stopped,
            ActionState::Skipped => stopped,
            _ => turn,
        };
        if !right {
            found.push(format!(
                "`{name}` is {state:?}, those before it say otherwise"
            ));
        }
    } else if matches!(
        state,
        ActionState::Pending | ActionState::Ready | ActionState::Backoff
    ) {
        found.push(format!(
            "`{name}` is {state:?} while the milestone is undone"
        ));
    }
}

/// Every attempt that has ended is in the report, or counted as dropped.
fn check_report(record: &MilestoneRecord, action: &ActionRecord, found: &mut Vec<String>) {
    for phase in Phase::ALL {
        let ended = action.tries(phase).map_or(0, |tries| {
            tries.attempts - i64::from(tries.running.is_some())
        });
        let attempts = record.report.iter();
        let mut numbers = attempts
            .filter(|attempt| attempt.action == action.name && attempt.phase == phase)
            .map(|attempt| attempt.number);
        let count = i64::try_from(numbers.clone().count()).unwrap_or(i64::MAX);
        if count > ended || (record.report_dropped == 0 && count != ended) {
            found.push(format!(
                "`{}` has {ended} ended attempts, the report has {count}",
                action.name
            ));
        }
        let mut later = ended + 1;
        if !numbers.all(|number| std::mem::replace(&mut later, number) > number && number > 0) {
            found.push(format!(
                "the attempts of `{}` are not in order in the report",
                action.name
            ));
        }
    }
}

fn check_undo(record: &MilestoneRecord, found: &mut Vec<String>) {
    let blocked = blocked(record);
    for (action, blocked) in record.actions.iter().zip(blocked) {
        let Some(undo) = &action.undo else { continue };
        let name = format!("the undo of `{}`", action.name);
        let (state, begun) = (undo.state, undo.attempts > 0);
        if (state == UndoState::Running) != undo.running.is_some() {
            found.push(format!(
                "{name} is {state:?}, but its running attempt says otherwise"
            ));
        }
        check_running(record, &name, undo.running.as_ref(), undo.attempts, found);
        if undo.at.is_some() && state != UndoState::None {
            found.push(format!("{name} is {state:?}, but its `at` says otherwise"));
        }
        if (state != UndoState::None) && !begun {
            found.push(format!("{name} is {state:?}, but has not begun"));
        }
        if begun && record.unwind.is_none() {
            found.push(format!("{name} has begun, but the milestone is not undone"));
        }
        if begun && (blocked || !can_be_undone(action)) {
            found.push(format!("{name} has begun before it may"));
        }
    }
}

fn check_verify(record: &MilestoneRecord, found: &mut Vec<String>) {
    for action in &record.actions {
        let Some(verify) = &action.verify else {
            continue;
        };
        let name = format!("the verify of `{}`", action.name);
        let state = verify.state;
        if (state == VerifyState::Running) != verify.running.is_some() {
            found.push(format!(
                "{name} is {state:?}, but its running attempt says otherwise"
            ));
        }
        check_running(
            record,
            &name,
            verify.running.as_ref(),
            verify.attempts,
            found,
        );
        let is_over = action.state != ActionState::InDoubt;
        if is_over && (state != VerifyState::None || verify.at.is_some()) {
            found.push(format!(
                "{name} is {state:?}, but `{}` is not in doubt",
                action.name
            ));
        }
        if verify.at.is_some() && state != VerifyState::None {
            found.push(format!("{name} is {state:?}, but its `at` says otherwise"));
        }
    }
}

fn check_end(record: &MilestoneRecord, found: &mut Vec<String>) {
    let status = status_of(record);
    if record.state != status {
        found.push(format!(
            "its state is {}, its actions say {status}",
            record.state
        ));
    }
    if let Some(unwind) = &record.unwind
        && !matches!(
            unwind.to,
            Status::Undone | Status::Cancelled | Status::Failed
        )
    {
        found.push(format!("it is undone, to end {}", unwind.to));
    }
    if record.state.is_terminal() != record.end_date.is_some() {
        found.push(format!(
            "it is {}, and its endDate says otherwise",
            record.state
        ));
    }
    // A failed one with mail waits for a worker, or has one, to read it.
    let is_to_be_retried = record.state == Status::Failed && !record.inbox.is_empty();
    if record.state.is_terminal() && !is_to_be_retried {
        if record.lease.is_some() {
            found.push("it has ended, and is held".to_owned());
        }
        if !record.due.is_empty() || record.next.is_some() {
            found.push("it has ended, and is due".to_owned());
        }
        if record.hold.is_some() {
            found.push("it has ended, and is on hold".to_owned());
        }
        if !record.inbox.is_empty() {
            found.push("it has ended, and a command is unread".to_owned());
        }
    }
}

/// A held milestone has one entry, anybody's at the end of the lease; one that nobody holds has what its worker must be able to do.
fn check_lease(record: &MilestoneRecord, found: &mut Vec<String>) {
    if record.due.is_empty() != record.next.is_none() {
        found.push("`due` and `next` do not agree".to_owned());
    }
    if let Some(lease) = &record.lease {
        let due = matches!(record.due.as_slice(), [due] if due.method.is_empty());
        let next = record.next.as_ref();
        if !due || next.is_none_or(|next| next.at < lease.until) {
            found.push("it is held, and its due entries are not those of a held one".to_owned());
        }
        if record.epoch < 1 {
            found.push("it is held, and has no epoch".to_owned());
        }
        return;
    }
    if record.actions.iter().any(ActionRecord::is_running) {
        found.push("an attempt runs, and nobody holds it".to_owned());
    }
    if !record.inbox.is_empty() && record.next.is_none() {
        found.push("a command is unread, and nobody is told".to_owned());
    }
    if record.state.is_terminal() {
        return;
    }
    for task in due_tasks(record) {
        let told = record.due.iter().any(|due| {
            due.queue == task.queue
                && due.method == task.method
                && task.at.is_none_or(|at| due.at <= at)
        });
        if !told {
            let name = &record.actions[task.task.action].name;
            found.push(format!(
                "`{name}` can run, and nobody is told that it is due"
            ));
        }
    }
    let (expected, _) = schedule(record, record.created_at);
    let extra = record.due.iter().any(|due| {
        let same =
            |other: &crate::record::Due| other.queue == due.queue && other.method == due.method;
        let mail = due.method.is_empty() && !record.inbox.is_empty();
        !mail && !expected.iter().any(same)
    });
    if extra {
        found.push("it is due for something that cannot run".to_owned());
    }
    // With mail it is the time of the mail, which may be later.
    if let Some(next) = record.next.as_ref().filter(|_| record.inbox.is_empty())
        && record.due.iter().any(|due| due.at < next.at)
    {
        found.push("`next` is not the earliest of `due`".to_owned());
    }
}

fn check_dates(record: &MilestoneRecord, found: &mut Vec<String>) {
    let begun = record.actions.iter().any(|action| action.attempts > 0);
    if begun != record.begin_date.is_some() {
        found
            .push("an attempt has begun, or none has, and its beginDate says otherwise".to_owned());
    }
    let created = record.created_at;
    if record.begin_date.is_some_and(|begin| begin < created)
        || record.end_date.is_some_and(|end| end < created)
        || record
            .report
            .iter()
            .any(|attempt| attempt.end_date < attempt.begin_date)
    {
        found.push("its dates are not in order".to_owned());
    }
}
