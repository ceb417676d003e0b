//! Changes a record and notes each change in a patch, so that the two never differ.

use bson::{Bson, DateTime};

use super::{Task, encode::Encode};
use crate::{
    limits::Limits,
    patch::Patch,
    record::{
        ActionState, Hold, MilestoneRecord, Phase, Running, Status, UndoState, Unwind, VerifyState,
    },
};

/// The attempts of one phase of an action, to change them.
struct TriesMut<'r> {
    attempts: &'r mut i64,
    failures: &'r mut i64,
    running: &'r mut Option<Running>,
    at: &'r mut Option<DateTime>,
    patch: &'r mut Patch,
}

/// Where a field of a phase of an action stands in the document.
fn path(task: Task, field: &str) -> String {
    let index = task.action;
    match task.phase {
        Phase::Do => format!("actions.{index}.{field}"),
        Phase::Verify => format!("actions.{index}.verify.{field}"),
        Phase::Undo => format!("actions.{index}.undo.{field}"),
    }
}

pub(super) struct Editor<'r> {
    pub(super) record: &'r mut MilestoneRecord,
    pub(super) patch: Patch,
    pub(super) now: DateTime,
    pub(super) limits: &'r Limits,
}

impl<'r> Editor<'r> {
    pub(super) fn new(record: &'r mut MilestoneRecord, now: DateTime, limits: &'r Limits) -> Self {
        // Two processes estimate the server's time; a milestone must not begin before it was made for that.
        let now = now.max(record.created_at);
        Self {
            record,
            patch: Patch::default(),
            now,
            limits,
        }
    }

    pub(super) fn finish(self) -> Patch {
        self.patch
    }

    pub(super) fn set_state(&mut self, index: usize, state: ActionState) {
        if self.record.actions[index].state != state {
            self.record.actions[index].state = state;
            self.patch
                .set(format!("actions.{index}.state"), state.encode());
        }
    }

    pub(super) fn set_running(&mut self, task: Task, running: Option<Running>) {
        let field = path(task, "running");
        if let Some(tries) = self.tries(task) {
            let (slot, patch) = (tries.running, tries.patch);
            set_optional(patch, field, running.as_ref());
            *slot = running;
        }
    }

    pub(super) fn set_attempts(&mut self, task: Task, attempts: i64) {
        let field = path(task, "attempts");
        if let Some(tries) = self.tries(task) {
            *tries.attempts = attempts;
            tries.patch.set(field, attempts);
        }
    }

    pub(super) fn set_failures(&mut self, task: Task, failures: i64) {
        if let Some(tries) = self.tries(task)
            && *tries.failures != failures
        {
            *tries.failures = failures;
            set_count(tries.patch, path(task, "failures"), failures);
        }
    }

    /// When it is tried again.
    pub(super) fn set_at(&mut self, task: Task, at: Option<DateTime>) {
        if let Some(tries) = self.tries(task)
            && *tries.at != at
        {
            *tries.at = at;
            set_optional(tries.patch, path(task, "at"), at.as_ref());
        }
    }

    /// The attempts of a phase of an action, to change them, with the patch that is to say so.
    fn tries(&mut self, task: Task) -> Option<TriesMut<'_>> {
        let patch = &mut self.patch;
        let action = &mut self.record.actions[task.action];
        Some(match task.phase {
            Phase::Do => TriesMut {
                attempts: &mut action.attempts,
                failures: &mut action.failures,
                running: &mut action.running,
                at: &mut action.at,
                patch,
            },
            Phase::Verify => {
                let verify = action.verify.as_mut()?;
                TriesMut {
                    attempts: &mut verify.attempts,
                    failures: &mut verify.failures,
                    running: &mut verify.running,
                    at: &mut verify.at,
                    patch,
                }
            }
            Phase::Undo => {
                let undo = action.undo.as_mut()?;
                TriesMut {
                    attempts: &mut undo.attempts,
                    failures: &mut undo.failures,
                    running: &mut undo.running,
                    at: &mut undo.at,
                    patch,
                }
            }
        })
    }

    pub(super) fn set_settle_after(&mut self, index: usize, at: Option<DateTime>) {
        if self.record.actions[index].settle_after != at {
            self.record.actions[index].settle_after = at;
            set_optional(
                &mut self.patch,
                format!("actions.{index}.settleAfter"),
                at.as_ref(),
            );
        }
    }

    pub(super) fn set_output(&mut self, index: usize, output: Bson) {
        self.patch
            .set(format!("actions.{index}.output"), output.clone());
        self.record.actions[index].output = Some(output);
    }

    pub(super) fn set_verify_state(&mut self, index: usize, state: VerifyState) {
        if let Some(verify) = &mut self.record.actions[index].verify
            && verify.state != state
        {
            verify.state = state;
            self.patch
                .set(format!("actions.{index}.verify.state"), state.encode());
        }
    }

    pub(super) fn set_undo_state(&mut self, index: usize, state: UndoState) {
        if let Some(undo) = &mut self.record.actions[index].undo
            && undo.state != state
        {
            undo.state = state;
            self.patch
                .set(format!("actions.{index}.undo.state"), state.encode());
        }
    }

    pub(super) fn set_unwind(&mut self, unwind: Option<Unwind>) {
        if self.record.unwind != unwind {
            set_optional(&mut self.patch, "unwind".to_owned(), unwind.as_ref());
            self.record.unwind = unwind;
        }
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<DateTime>) {
        if self.record.deadline != deadline {
            set_optional(&mut self.patch, "deadline".to_owned(), deadline.as_ref());
            self.record.deadline = deadline;
        }
    }

    pub(super) fn set_status(&mut self, status: Status) {
        if self.record.state != status {
            self.record.state = status;
            self.patch.set("state", status.as_str());
        }
    }

    pub(super) fn set_hold(&mut self, hold: Option<Hold>) {
        if self.record.hold != hold {
            set_optional(&mut self.patch, "hold".to_owned(), hold.as_ref());
            self.record.hold = hold;
        }
    }

    pub(super) fn set_begin_date(&mut self) {
        if self.record.begin_date.is_none() {
            self.record.begin_date = Some(self.now);
            self.patch.set("beginDate", self.now);
        }
    }

    pub(super) fn set_end_date(&mut self, at: Option<DateTime>) {
        if self.record.end_date.is_some() != at.is_some() {
            self.record.end_date = at;
            set_optional(&mut self.patch, "endDate".to_owned(), at.as_ref());
        }
    }

    /// How many leases in a row ended without a word.
    pub(super) fn set_losses(&mut self, losses: i64) {
        if self.record.losses != losses {
            self.record.losses = losses;
            set_count(&mut self.patch, "losses".to_owned(), losses);
        }
    }

    /// The patch begins, hands back or ends: it must not overlook a command.
    pub(super) fn guard(&mut self) {
        self.patch.guard(self.record.mail);
    }

    pub(super) fn release(&mut self) {
        self.guard();
        self.patch.release();
        self.record.lease = None;
        self.patch.unset("lease");
    }
}

fn set_optional<T: Encode>(patch: &mut Patch, field: String, value: Option<&T>) {
    match value {
        Some(value) => patch.set(field, value.encode()),
        None => patch.unset(field),
    }
}

/// Counts that are zero are not stored.
fn set_count(patch: &mut Patch, field: String, count: i64) {
    if count == 0 {
        patch.unset(field);
    } else {
        patch.set(field, count);
    }
}
