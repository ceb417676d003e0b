//! How attempts begin and end.

use std::time::Duration;

use bson::{Bson, DateTime};

use super::{Failed, Task, TransitionError, editor::Editor, schedule::due_now};
use crate::{
    limits::check_value,
    record::{ActionState, Attempt, AttemptError, AttemptKind, Phase, Running, UndoState},
};

/// What happens to an action after an attempt that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It is run again as soon as there is a place.
    Again,
    /// It is run again then.
    Retry(DateTime),
    /// Nobody knows whether it took effect; from then on the attempt no longer can.
    InDoubt(DateTime),
    /// It has failed for good.
    Final,
}

impl Editor<'_> {
    /// Finds the attempts of a worker that is no more.
    pub(super) fn take_over(&mut self, settle: Duration) {
        for index in 0..self.record.actions.len() {
            for phase in [Phase::Do, Phase::Undo] {
                let task = Task {
                    action: index,
                    phase,
                };
                // Those of this epoch are the worker's own.
                let Some(running) = self
                    .running(task)
                    .filter(|running| running.epoch != self.record.epoch)
                    .cloned()
                else {
                    continue;
                };
                self.end_attempt(task, &running, None, Some(AttemptKind::Abandoned), None);
                match phase {
                    Phase::Undo => self.set_undo_state(index, UndoState::None),
                    Phase::Do if self.record.actions[index].mode.repeatable() => {
                        self.set_state(index, ActionState::Ready);
                    }
                    Phase::Do => self.doubt(index, later(self.now, settle)),
                }
            }
        }
    }

    pub(super) fn begin(&mut self, tasks: &[Task], worker: &str) -> Result<(), TransitionError> {
        let mut due = due_now(self.record, self.now);
        for task in tasks {
            let action = self
                .record
                .actions
                .get(task.action)
                .ok_or(TransitionError::NoAction { index: task.action })?;
            if !due.remove(task) {
                return Err(TransitionError::NotDue {
                    action: action.name.clone(),
                });
            }
        }
        if tasks.is_empty() {
            return Ok(());
        }
        self.guard();
        self.set_begin_date();
        for task in tasks {
            self.begin_one(*task, worker);
        }
        Ok(())
    }

    fn begin_one(&mut self, task: Task, worker: &str) {
        let index = task.action;
        let action = &self.record.actions[index];
        let before = match task.phase {
            Phase::Do => action.attempts,
            Phase::Undo => action.undo.as_ref().map_or(0, |undo| undo.attempts),
        };
        let running = Running {
            number: before.saturating_add(1),
            begin_date: self.now,
            worker: worker.to_owned(),
            epoch: self.record.epoch,
        };
        match task.phase {
            Phase::Do => {
                self.set_attempts(index, running.number);
                self.set_state(index, ActionState::Running);
                self.set_at(index, None);
                self.set_running(index, Some(running));
            }
            Phase::Undo => {
                self.set_undo_attempts(index, running.number);
                self.set_undo_state(index, UndoState::Running);
                self.set_undo_at(index, None);
                self.set_undo_running(index, Some(running));
            }
        }
    }

    pub(super) fn succeed(
        &mut self,
        task: Task,
        number: i64,
        output: Bson,
    ) -> Result<(), TransitionError> {
        let running = self.check_running(task, number)?;
        self.forget_losses();
        if task.phase == Phase::Undo {
            self.end_attempt(task, &running, Some(true), None, None);
            self.set_undo_state(task.action, UndoState::Done);
            self.set_undo_failures(task.action, 0);
            return Ok(());
        }
        let what = format!("the output of `{}`", self.record.actions[task.action].name);
        if let Err(limit) = check_value(&what, &output, self.limits.output, "output") {
            let error = AttemptError {
                kind: "LimitError".to_owned(),
                message: format!("the action took effect, but {limit}; it is not run again"),
                ..AttemptError::default()
            };
            self.end_attempt(
                task,
                &running,
                Some(false),
                Some(AttemptKind::Refused),
                Some(error),
            );
            self.set_state(task.action, ActionState::Failed);
            return Ok(());
        }
        self.end_attempt(task, &running, Some(true), None, None);
        self.set_output(task.action, output);
        self.set_state(task.action, ActionState::Completed);
        self.set_failures(task.action, 0);
        Ok(())
    }

    pub(super) fn fail(
        &mut self,
        task: Task,
        number: i64,
        failed: Failed,
    ) -> Result<(), TransitionError> {
        let running = self.check_running(task, number)?;
        self.forget_losses();
        let after = self.after(task, &failed);
        let success = match after {
            After::InDoubt(_) => None,
            _ => Some(false),
        };
        self.end_attempt(task, &running, success, failed.kind, Some(failed.error));
        if after != After::Again {
            self.count_failure(task);
        }
        match (task.phase, after) {
            (Phase::Undo, After::Final | After::InDoubt(_)) => {
                self.set_undo_state(task.action, UndoState::Failed);
            }
            (Phase::Undo, After::Again) => self.set_undo_state(task.action, UndoState::None),
            (Phase::Undo, After::Retry(at)) => {
                self.set_undo_state(task.action, UndoState::None);
                self.set_undo_at(task.action, Some(at));
            }
            (Phase::Do, After::Again) => self.set_state(task.action, ActionState::Ready),
            (Phase::Do, After::Retry(at)) => {
                self.set_state(task.action, ActionState::Backoff);
                self.set_at(task.action, Some(at));
            }
            (Phase::Do, After::InDoubt(at)) => self.doubt(task.action, at),
            (Phase::Do, After::Final) => self.set_state(task.action, ActionState::Failed),
        }
        Ok(())
    }

    fn count_failure(&mut self, task: Task) {
        let action = &self.record.actions[task.action];
        match task.phase {
            Phase::Do => self.set_failures(task.action, action.failures.saturating_add(1)),
            Phase::Undo => {
                let failures = action.undo.as_ref().map_or(0, |undo| undo.failures);
                self.set_undo_failures(task.action, failures.saturating_add(1));
            }
        }
    }

    fn after(&self, task: Task, failed: &Failed) -> After {
        let action = &self.record.actions[task.action];
        let cut_off = matches!(
            failed.kind,
            Some(
                AttemptKind::Timeout
                    | AttemptKind::Panic
                    | AttemptKind::Cancelled
                    | AttemptKind::Abandoned
            )
        );
        let handed_back = matches!(
            failed.kind,
            Some(AttemptKind::Cancelled | AttemptKind::Abandoned)
        );
        let (failures, policy) = match task.phase {
            Phase::Do => (action.failures, failed.policy),
            // An undo is retried without end.
            Phase::Undo => {
                let failures = action.undo.as_ref().map_or(0, |undo| undo.failures);
                let policy = crate::retry::RetryPolicy {
                    max: None,
                    ..failed.policy
                };
                (failures, policy)
            }
        };
        if task.phase == Phase::Do {
            if failed.kind == Some(AttemptKind::Refused) {
                return After::Final;
            }
            if cut_off && !action.mode.repeatable() {
                return After::InDoubt(later(self.now, failed.settle));
            }
            // Nothing new begins while the milestone is undone: this attempt was the last one.
            if self.record.unwind.is_some() {
                return After::Final;
            }
        }
        if handed_back {
            return After::Again;
        }
        if failed.fatal {
            return After::Final;
        }
        let failures = u32::try_from(failures.saturating_add(1)).unwrap_or(u32::MAX);
        match policy.delay(failures, failed.jitter) {
            Some(delay) => After::Retry(later(self.now, failed.retry_after.unwrap_or(delay))),
            None => After::Final,
        }
    }

    pub(super) fn doubt(&mut self, index: usize, settled: DateTime) {
        self.set_state(index, ActionState::InDoubt);
        self.set_settle_after(index, Some(settled));
    }

    fn running(&self, task: Task) -> Option<&Running> {
        let action = self.record.actions.get(task.action)?;
        match task.phase {
            Phase::Do => action.running.as_ref(),
            Phase::Undo => action.undo.as_ref()?.running.as_ref(),
        }
    }

    fn check_running(&self, task: Task, number: i64) -> Result<Running, TransitionError> {
        let action = self
            .record
            .actions
            .get(task.action)
            .ok_or(TransitionError::NoAction { index: task.action })?;
        match self.running(task) {
            Some(running) if running.number == number => Ok(running.clone()),
            _ => Err(TransitionError::NotRunning {
                action: action.name.clone(),
                number,
            }),
        }
    }

    fn end_attempt(
        &mut self,
        task: Task,
        running: &Running,
        success: Option<bool>,
        kind: Option<AttemptKind>,
        error: Option<AttemptError>,
    ) {
        match task.phase {
            Phase::Do => self.set_running(task.action, None),
            Phase::Undo => self.set_undo_running(task.action, None),
        }
        let attempt = Attempt {
            action: self.record.actions[task.action].name.clone(),
            number: running.number,
            phase: task.phase,
            success,
            kind,
            begin_date: running.begin_date,
            end_date: self.now.max(running.begin_date),
            worker: running.worker.clone(),
            error,
        };
        self.report(attempt);
    }
}

/// A time later, at most the latest that BSON and people can read.
pub(super) fn later(now: DateTime, by: Duration) -> DateTime {
    const LATEST: i64 = 253_402_300_799_999;
    let by = i64::try_from(by.as_millis()).unwrap_or(LATEST);
    DateTime::from_millis(now.timestamp_millis().saturating_add(by).min(LATEST))
}
