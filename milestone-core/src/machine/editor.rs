//! Changes a record and notes each change in a patch, so that the two never differ.

use bson::{Bson, DateTime};
use serde::Serialize;

use crate::{
    limits::Limits,
    patch::Patch,
    record::{ActionState, Hold, MilestoneRecord, Running, Status, UndoState},
};

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
                .set(format!("actions.{index}.state"), encode(&state));
        }
    }

    pub(super) fn set_running(&mut self, index: usize, running: Option<Running>) {
        set_optional(
            &mut self.patch,
            format!("actions.{index}.running"),
            running.as_ref(),
        );
        self.record.actions[index].running = running;
    }

    pub(super) fn set_attempts(&mut self, index: usize, attempts: i64) {
        self.record.actions[index].attempts = attempts;
        self.patch
            .set(format!("actions.{index}.attempts"), attempts);
    }

    pub(super) fn set_failures(&mut self, index: usize, failures: i64) {
        if self.record.actions[index].failures != failures {
            self.record.actions[index].failures = failures;
            set_count(
                &mut self.patch,
                format!("actions.{index}.failures"),
                failures,
            );
        }
    }

    pub(super) fn set_at(&mut self, index: usize, at: Option<DateTime>) {
        if self.record.actions[index].at != at {
            self.record.actions[index].at = at;
            set_optional(&mut self.patch, format!("actions.{index}.at"), at.as_ref());
        }
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

    pub(super) fn set_undo_state(&mut self, index: usize, state: UndoState) {
        if let Some(undo) = &mut self.record.actions[index].undo
            && undo.state != state
        {
            undo.state = state;
            self.patch
                .set(format!("actions.{index}.undo.state"), encode(&state));
        }
    }

    pub(super) fn set_undo_running(&mut self, index: usize, running: Option<Running>) {
        if let Some(undo) = &mut self.record.actions[index].undo {
            set_optional(
                &mut self.patch,
                format!("actions.{index}.undo.running"),
                running.as_ref(),
            );
            undo.running = running;
        }
    }

    pub(super) fn set_undo_attempts(&mut self, index: usize, attempts: i64) {
        if let Some(undo) = &mut self.record.actions[index].undo {
            undo.attempts = attempts;
            self.patch
                .set(format!("actions.{index}.undo.attempts"), attempts);
        }
    }

    pub(super) fn set_undo_failures(&mut self, index: usize, failures: i64) {
        if let Some(undo) = &mut self.record.actions[index].undo
            && undo.failures != failures
        {
            undo.failures = failures;
            set_count(
                &mut self.patch,
                format!("actions.{index}.undo.failures"),
                failures,
            );
        }
    }

    pub(super) fn set_undo_at(&mut self, index: usize, at: Option<DateTime>) {
        if let Some(undo) = &mut self.record.actions[index].undo
            && undo.at != at
        {
            undo.at = at;
            set_optional(
                &mut self.patch,
                format!("actions.{index}.undo.at"),
                at.as_ref(),
            );
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

    /// A worker got through an attempt, so it is not the milestone that kills workers.
    pub(super) fn forget_losses(&mut self) {
        if self.record.losses != 0 {
            self.record.losses = 0;
            self.patch.unset("losses");
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

pub(super) fn encode<T: Serialize>(value: &T) -> Bson {
    bson::serialize_to_bson(value).expect("the schema's own types fit BSON")
}

pub(super) fn encode_all<T: Serialize>(values: &[T]) -> Vec<Bson> {
    values.iter().map(encode).collect()
}

pub(super) fn set_optional<T: Serialize>(patch: &mut Patch, field: String, value: Option<&T>) {
    match value {
        Some(value) => patch.set(field, encode(value)),
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
