//! How attempts begin and end.

use std::time::Duration;

use bson::{Bson, DateTime};

use super::{Failed, Task, TransitionError, editor::Editor, schedule::due_now};
use crate::{
    lease::{ALONE, PARKED_FROM},
    limits::check_value,
    record::{
        ActionState, Attempt, AttemptError, AttemptKind, Hold, Phase, Running, UndoState,
        VerifyState,
    },
    verdict::Verdict,
};

/// The shortest delay of a retry. What is tried again at once would keep its place, and with that what waits for one.
const SHORTEST: Duration = Duration::from_millis(1);

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
    /// Finds the attempts of a worker that is no more. A milestone with which too many workers have died is parked.
    pub(super) fn take_over(&mut self, settle: Duration) {
        for index in 0..self.record.actions.len() {
            for phase in Phase::ALL {
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
                    Phase::Verify => self.set_verify_state(index, VerifyState::None),
                    Phase::Do if self.record.actions[index].mode.repeatable() => {
                        self.set_state(index, ActionState::Ready);
                    }
                    Phase::Do => self.doubt(index, later(self.now, settle)),
                }
            }
        }
        if self.record.losses >= PARKED_FROM && self.record.hold.is_none() {
            let reason = format!(
                "parked: {} workers in a row were lost while they ran it, {ALONE} of them while they ran nothing else, so it may be what kills \
                 them; `resume` tries it again",
                self.record.losses
            );
            self.set_hold(Some(Hold {
                reason,
                by: "milestone".to_owned(),
                since: self.now,
            }));
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
        let before = self.record.actions[task.action]
            .tries(task.phase)
            .map_or(0, |tries| tries.attempts);
        let running = Running {
            number: before.saturating_add(1),
            begin_date: self.now,
            worker: worker.to_owned(),
            epoch: self.record.epoch,
        };
        self.set_attempts(task, running.number);
        match task.phase {
            Phase::Do => self.set_state(task.action, ActionState::Running),
            Phase::Verify => self.set_verify_state(task.action, VerifyState::Running),
            Phase::Undo => self.set_undo_state(task.action, UndoState::Running),
        }
        self.set_at(task, None);
        self.set_running(task, Some(running));
    }

    pub(super) fn succeed(
        &mut self,
        task: Task,
        number: i64,
        output: Bson,
    ) -> Result<(), TransitionError> {
        let running = self.check_running(task, number)?;
        self.forget_losses(task.phase);
        match task.phase {
            Phase::Do => {}
            Phase::Verify => {
                self.verified(task, &running, output);
                return Ok(());
            }
            Phase::Undo => {
                self.end_attempt(task, &running, Some(true), None, None);
                self.set_undo_state(task.action, UndoState::Done);
                self.set_failures(task, 0);
                return Ok(());
            }
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
        self.set_failures(task, 0);
        Ok(())
    }

    pub(super) fn fail(
        &mut self,
        task: Task,
        number: i64,
        failed: Failed,
    ) -> Result<(), TransitionError> {
        let running = self.check_running(task, number)?;
        self.forget_losses(task.phase);
        let after = self.after(task, &failed);
        let is_handed_back = failed.is_handed_back();
        let success = match after {
            After::InDoubt(_) => None,
            _ => Some(false),
        };
        self.end_attempt(task, &running, success, failed.kind, Some(failed.error));
        // A worker that shuts down or dies is no failure of the action.
        if !is_handed_back {
            self.count_failure(task);
        }
        match (task.phase, after) {
            (Phase::Undo, After::Final | After::InDoubt(_)) => {
                self.set_undo_state(task.action, UndoState::Failed);
            }
            (Phase::Undo, After::Again) => self.set_undo_state(task.action, UndoState::None),
            (Phase::Undo, After::Retry(at)) => {
                self.set_undo_state(task.action, UndoState::None);
                self.set_at(task, Some(at));
            }
            (Phase::Verify, After::Final | After::InDoubt(_)) => {
                self.set_verify_state(task.action, VerifyState::Failed);
            }
            (Phase::Verify, After::Again) => self.set_verify_state(task.action, VerifyState::None),
            (Phase::Verify, After::Retry(at)) => {
                self.set_verify_state(task.action, VerifyState::None);
                self.set_at(task, Some(at));
            }
            (Phase::Do, After::Again) => self.set_state(task.action, ActionState::Ready),
            (Phase::Do, After::Retry(at)) => {
                self.set_state(task.action, ActionState::Backoff);
                self.set_at(task, Some(at));
            }
            (Phase::Do, After::InDoubt(at)) => self.doubt(task.action, at),
            (Phase::Do, After::Final) => self.set_state(task.action, ActionState::Failed),
        }
        Ok(())
    }

    /// An attempt that has ended has not killed its worker. One that only verifies says nothing of the action that may: it comes between any
    /// two of its attempts.
    fn forget_losses(&mut self, phase: Phase) {
        if phase != Phase::Verify {
            self.set_losses(0);
        }
    }

    /// What a verify function says of the attempt in doubt. A verdict that cannot be is a failure for good, which an operator looks at.
    fn verified(&mut self, task: Task, running: &Running, verdict: Bson) {
        let index = task.action;
        let what = format!("the output of `{}`", self.record.actions[index].name);
        let verdict = Verdict::from_bson(verdict).and_then(|verdict| {
            if let Verdict::Applied(output) = &verdict {
                check_value(&what, output, self.limits.output, "output")
                    .map_err(|limit| limit.to_string())?;
            }
            Ok(verdict)
        });
        match verdict {
            Ok(verdict) => {
                self.end_attempt(task, running, Some(true), None, None);
                self.set_verify_state(index, VerifyState::None);
                self.set_failures(task, 0);
                self.settle_doubt(index, verdict);
            }
            Err(message) => {
                let error = AttemptError {
                    kind: "Verdict".to_owned(),
                    message,
                    ..AttemptError::default()
                };
                let kind = Some(AttemptKind::Refused);
                self.end_attempt(task, running, Some(false), kind, Some(error));
                self.count_failure(task);
                self.set_verify_state(index, VerifyState::Failed);
            }
        }
    }

    /// Somebody has said whether the attempt in doubt took effect.
    pub(super) fn settle_doubt(&mut self, index: usize, verdict: Verdict<Bson>) {
        match verdict {
            Verdict::Applied(output) => {
                self.set_output(index, output);
                self.set_state(index, ActionState::Completed);
                self.set_failures(Task::to_do(index), 0);
                self.set_losses(0);
            }
            Verdict::NotApplied if self.record.unwind.is_some() => {
                self.set_state(index, ActionState::Failed);
            }
            Verdict::NotApplied => self.set_state(index, ActionState::Ready),
        }
        self.set_settle_after(index, None);
        self.forget_verify(index);
    }

    /// Nothing is to be verified any more: a verify that runs is told off, and one that has failed is over.
    fn forget_verify(&mut self, index: usize) {
        let task = Task::to_verify(index);
        if let Some(running) = self.running(task).cloned() {
            self.end_attempt(task, &running, None, Some(AttemptKind::Cancelled), None);
        }
        self.set_verify_state(index, VerifyState::None);
        self.set_at(task, None);
        self.set_failures(task, 0);
    }

    fn count_failure(&mut self, task: Task) {
        let tries = self.record.actions[task.action].tries(task.phase);
        let failures = tries.map_or(0, |tries| tries.failures);
        self.set_failures(task, failures.saturating_add(1));
    }

    fn after(&self, task: Task, failed: &Failed) -> After {
        let action = &self.record.actions[task.action];
        let cut_off = matches!(
            failed.kind,
            Some(
                AttemptKind::Timeout
                    | AttemptKind::Panic
                    | AttemptKind::Unclear
                    | AttemptKind::Cancelled
                    | AttemptKind::Abandoned
            )
        );
        let failures = action.tries(task.phase).map_or(0, |tries| tries.failures);
        let mut policy = failed.policy;
        if task.phase == Phase::Undo {
            // An undo is retried without end.
            policy.max = None;
        }
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
        if failed.is_handed_back() {
            return After::Again;
        }
        if failed.fatal {
            return After::Final;
        }
        let failures = u32::try_from(failures.saturating_add(1)).unwrap_or(u32::MAX);
        match policy.delay(failures, failed.jitter) {
            Some(delay) => {
                let delay = failed.retry_after.unwrap_or(delay);
                After::Retry(later(self.now, delay.max(SHORTEST)))
            }
            None => After::Final,
        }
    }

    pub(super) fn doubt(&mut self, index: usize, settled: DateTime) {
        self.set_state(index, ActionState::InDoubt);
        self.set_settle_after(index, Some(settled));
        self.forget_verify(index);
    }

    fn running(&self, task: Task) -> Option<&Running> {
        self.record.actions.get(task.action)?.running_in(task.phase)
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
        self.set_running(task, None);
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
