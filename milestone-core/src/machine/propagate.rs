//! What follows from what has happened: whose turn it is, what is skipped, whether the milestone is undone, ended, and its state.

use super::{Task, editor::Editor, undo::unwound};
use crate::record::{ActionKind, ActionRecord, ActionState, MilestoneRecord, Status, Unwind};

impl Editor<'_> {
    /// Brings everything that is derived up to date, and ends the milestone if nothing is left to do. No command is left unread by
    /// that: it is answered first, and may prevent the end.
    pub(super) fn propagate(&mut self) {
        self.derive();
        if self.record.state.is_terminal() && !self.record.inbox.is_empty() {
            self.read_mail();
        }
        self.conclude();
    }

    /// What the actions and the milestone are now. Actions stand behind those they wait for, so one pass is enough.
    pub(super) fn derive(&mut self) {
        self.unwind_after_failure();
        if is_complete_after_all(self.record) {
            self.set_unwind(None);
        }
        if self.record.unwind.is_none() {
            self.pass_the_turn();
            self.unwind_after_deadline();
        }
        if self.record.unwind.is_some() {
            self.stop_what_has_not_begun();
        }
        let status = status_of(self.record);
        self.set_status(status);
    }

    fn conclude(&mut self) {
        if self.record.state.is_terminal() {
            self.set_end_date(Some(self.now));
            // Nothing can begin anyway, and a retry is meant to go on.
            self.set_hold(None);
            if self.record.lease.is_some() {
                self.release();
            }
            self.clear_due();
        } else {
            self.set_end_date(None);
        }
    }

    /// A failure for good undoes what was done, if anything in the graph says how.
    fn unwind_after_failure(&mut self) {
        if self.record.unwind.is_some()
            || !self
                .record
                .actions
                .iter()
                .any(|action| action.undo.is_some())
        {
            return;
        }
        if let Some(failed) = self
            .record
            .actions
            .iter()
            .find(|action| action.state == ActionState::Failed)
        {
            let reason = format!("`{}` failed", failed.name);
            self.unwind(Unwind {
                to: Status::Undone,
                reason,
                by: None,
                since: self.now,
            });
        }
    }

    /// A milestone whose time is over begins nothing more. What has completed it in the meantime counts, however late.
    fn unwind_after_deadline(&mut self) {
        let is_terminal = status_of(self.record).is_terminal();
        let Some(deadline) = self
            .record
            .deadline
            .filter(|deadline| *deadline <= self.now && !is_terminal && self.record.hold.is_none())
        else {
            return;
        };
        let is_undoable = self
            .record
            .actions
            .iter()
            .any(|action| action.undo.is_some());
        let to = if is_undoable {
            Status::Undone
        } else {
            Status::Failed
        };
        let reason = format!(
            "{}, {}, has passed",
            Unwind::DEADLINE,
            deadline
                .try_to_rfc3339_string()
                .unwrap_or_else(|_| deadline.to_string())
        );
        self.unwind(Unwind {
            to,
            reason,
            by: None,
            since: self.now,
        });
    }

    pub(super) fn unwind(&mut self, unwind: Unwind) {
        self.set_unwind(Some(unwind));
    }

    fn stop_what_has_not_begun(&mut self) {
        for index in 0..self.record.actions.len() {
            let action = &self.record.actions[index];
            match action.state {
                ActionState::Pending | ActionState::Ready | ActionState::Backoff => {
                    let begun = action.attempts > 0;
                    self.set_state(
                        index,
                        if begun {
                            ActionState::Failed
                        } else {
                            ActionState::Skipped
                        },
                    );
                    self.set_at(Task::to_do(index), None);
                }
                _ => {}
            }
        }
    }

    fn pass_the_turn(&mut self) {
        for index in 0..self.record.actions.len() {
            let action = &self.record.actions[index];
            if action.state != ActionState::Pending {
                continue;
            }
            let before = action
                .after
                .iter()
                .map(|after| self.record.actions[*after as usize].state);
            let (mut done, mut stopped) = (true, false);
            for state in before {
                done &= state == ActionState::Completed;
                stopped |= matches!(state, ActionState::Failed | ActionState::Skipped);
            }
            if stopped {
                self.set_state(index, ActionState::Skipped);
            } else if done {
                let fork = action.kind == ActionKind::Fork;
                self.set_state(
                    index,
                    if fork {
                        ActionState::Completed
                    } else {
                        ActionState::Ready
                    },
                );
            }
        }
    }

    fn clear_due(&mut self) {
        if !self.record.due.is_empty() {
            self.record.due.clear();
            self.patch.unset("due");
        }
        if self.record.next.take().is_some() {
            self.patch.unset("next");
        }
    }
}

/// Whether what ran when the deadline passed has completed the milestone, before anything was undone: that counts, however late.
fn is_complete_after_all(record: &MilestoneRecord) -> bool {
    let is_overdue = record.unwind.as_ref().is_some_and(Unwind::is_overdue);
    let is_untouched = |action: &ActionRecord| {
        action.state == ActionState::Completed
            && action.undo.as_ref().is_none_or(|undo| undo.attempts == 0)
    };
    is_overdue && !record.state.is_terminal() && record.actions.iter().all(is_untouched)
}

/// The state of a milestone, from its actions.
pub(super) fn status_of(record: &MilestoneRecord) -> Status {
    if let Some(unwind) = &record.unwind {
        return if unwound(record) {
            unwind.to
        } else {
            Status::Undoing
        };
    }
    let has = |state| record.actions.iter().any(|action| action.state == state);
    if has(ActionState::Running) || has(ActionState::Ready) {
        return if record.begin_date.is_some() {
            Status::Running
        } else {
            Status::Pending
        };
    }
    if has(ActionState::Backoff) {
        Status::Waiting
    } else if has(ActionState::InDoubt) {
        Status::InDoubt
    } else if has(ActionState::Failed) {
        Status::Failed
    } else {
        Status::Completed
    }
}
