//! Undoing: in reverse order of the graph, each action once everything that began after it is undone.

use crate::record::{ActionRecord, ActionState, MilestoneRecord, Phase, UndoState};

/// Which actions still have something after them that is not undone. An action must wait for those.
pub(super) fn blocked(record: &MilestoneRecord) -> Vec<bool> {
    let mut blocked = vec![false; record.actions.len()];
    for (index, action) in record.actions.iter().enumerate().rev() {
        if blocked[index] || !settled(action) {
            for after in &action.after {
                blocked[*after as usize] = true;
            }
        }
    }
    blocked
}

/// Whether nothing is left to undo.
pub(super) fn unwound(record: &MilestoneRecord) -> bool {
    record.actions.iter().all(settled)
}

/// Whether an action that may wait for its undo can be undone as far as it is concerned itself.
pub(super) fn can_be_undone(action: &ActionRecord) -> bool {
    let verify_runs = action.running_in(Phase::Verify).is_some();
    action.attempts > 0
        && !verify_runs
        && matches!(
            action.state,
            ActionState::Completed | ActionState::Failed | ActionState::InDoubt
        )
}

/// Whether an action is as if it had never been, as far as that can be: an action without an undo need only have ended.
fn settled(action: &ActionRecord) -> bool {
    if action.attempts == 0 {
        return true;
    }
    match &action.undo {
        Some(undo) => {
            action.running.is_none() && matches!(undo.state, UndoState::Done | UndoState::Waived)
        }
        None => !matches!(action.state, ActionState::Running | ActionState::InDoubt),
    }
}
