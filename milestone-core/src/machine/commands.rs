//! Commands from outside: each is carried out once, by whoever holds the milestone, and answered.

use bson::Bson;

use super::{Task, editor::Editor, encode::encode_all, report::shortened};
use crate::{
    lease::{PARKED_FROM, SUSPECT_FROM},
    limits::{MAX_ANSWERS, check_value},
    record::{
        ActionState, Answer, AttemptKind, Command, Hold, Order, Phase, Status, UndoRecord,
        UndoState, Unwind, VerifyState,
    },
    verdict::Verdict,
};

/// What is answered: what was done, or why not.
type Reply = Result<String, String>;

impl Editor<'_> {
    /// Carries out all commands of the inbox, the oldest first.
    pub(super) fn read_mail(&mut self) {
        let commands = std::mem::take(&mut self.record.inbox);
        if commands.is_empty() {
            return;
        }
        for command in commands {
            let known = self
                .record
                .answers
                .iter()
                .any(|answer| answer.id == command.id);
            if known {
                continue;
            }
            let reply = self.carry_out(&command);
            // The next one finds the milestone as this one leaves it.
            self.derive();
            let (done, message) = match reply {
                Ok(message) => (true, message),
                Err(message) => (false, message),
            };
            self.record.answers.push(Answer {
                id: command.id,
                order: command.order.name().to_owned(),
                by: command.by,
                done,
                message: shortened(&message, self.limits.message),
                at: self.now,
            });
        }
        let surplus = self.record.answers.len().saturating_sub(MAX_ANSWERS);
        self.record.answers.drain(..surplus);
        self.guard();
        self.patch.unset("inbox");
        self.patch.set("answers", encode_all(&self.record.answers));
    }

    fn carry_out(&mut self, command: &Command) -> Reply {
        match &command.order {
            Order::Cancel { reason } => self.cancel(reason, &command.by),
            Order::Pause { reason } => self.pause(reason, &command.by),
            Order::Resume => self.resume(),
            Order::Retry => self.retry(),
            Order::Resolve {
                action,
                attempt,
                applied,
                output,
            } => self.resolve(action, *attempt, *applied, output),
            Order::Waive { action } => self.waive(action),
        }
    }

    fn cancel(&mut self, reason: &str, by: &str) -> Reply {
        if self.record.state.is_terminal() {
            return Err(format!("it is already {}", self.record.state));
        }
        if self.record.unwind.is_some() {
            return Err("already undoing".to_owned());
        }
        self.unwind(Unwind {
            to: Status::Cancelled,
            reason: shortened(reason, self.limits.message),
            by: Some(by.to_owned()),
            since: self.now,
        });
        Ok("nothing new begins, and what was done is undone".to_owned())
    }

    fn pause(&mut self, reason: &str, by: &str) -> Reply {
        if self.record.state.is_terminal() {
            return Err(format!("it is already {}", self.record.state));
        }
        if self.record.hold.is_some() {
            return Err("it is already on hold".to_owned());
        }
        self.set_hold(Some(Hold {
            reason: shortened(reason, self.limits.message),
            by: by.to_owned(),
            since: self.now,
        }));
        Ok("what runs ends, and nothing new begins".to_owned())
    }

    fn resume(&mut self) -> Reply {
        if self.record.hold.is_none() {
            return Err("it is not on hold".to_owned());
        }
        self.set_hold(None);
        if self.record.losses >= PARKED_FROM {
            // Whoever lets a parked one go on gives it as many tries again.
            self.set_losses(SUSPECT_FROM);
        }
        Ok("it goes on".to_owned())
    }

    fn retry(&mut self) -> Reply {
        match self.record.state {
            Status::Failed => self.retry_actions(),
            Status::Undoing | Status::InDoubt => return self.retry_helpers(),
            state => {
                return Err(format!(
                    "only a failed milestone can be retried; it is {state}"
                ));
            }
        }
        Ok("it goes on from what failed".to_owned())
    }

    fn retry_actions(&mut self) {
        // Whoever tries a milestone again whose time is over gives it all the time that it takes.
        self.set_unwind(None);
        if self.record.deadline <= Some(self.now) {
            self.set_deadline(None);
        }
        for index in 0..self.record.actions.len() {
            match self.record.actions[index].state {
                ActionState::Failed => {
                    self.set_failures(Task::to_do(index), 0);
                    if self.took_effect(index) && !self.record.actions[index].mode.repeatable() {
                        // It must not run again by itself: somebody resolves it, with an output that can be stored.
                        self.doubt(index, self.now);
                    } else {
                        self.set_state(index, ActionState::Ready);
                    }
                }
                ActionState::Skipped => self.set_state(index, ActionState::Pending),
                _ => {}
            }
        }
    }

    /// Whether the last attempt of a failed action did its work, and only its output could not be stored.
    fn took_effect(&self, index: usize) -> bool {
        let name = &self.record.actions[index].name;
        self.record
            .report
            .iter()
            .find(|attempt| attempt.action == *name && attempt.phase == Phase::Do)
            .is_some_and(|attempt| attempt.kind == Some(AttemptKind::Refused))
    }

    /// An undo or a verify that has failed for good is tried again.
    fn retry_helpers(&mut self) -> Reply {
        let mut found = false;
        for index in 0..self.record.actions.len() {
            let action = &self.record.actions[index];
            let undo = action.undo.as_ref().map(|undo| undo.state);
            let verify = action.verify.as_ref().map(|verify| verify.state);
            if undo == Some(UndoState::Failed) {
                found = true;
                self.set_failures(Task::to_undo(index), 0);
                self.set_undo_state(index, UndoState::None);
            }
            if verify == Some(VerifyState::Failed) {
                found = true;
                self.set_failures(Task::to_verify(index), 0);
                self.set_verify_state(index, VerifyState::None);
            }
        }
        if found {
            Ok("what has failed for good is tried again".to_owned())
        } else {
            Err(format!(
                "it is {}, and no undo or verify of it has failed for good",
                self.record.state
            ))
        }
    }

    fn resolve(&mut self, name: &str, attempt: Option<i64>, applied: bool, output: &Bson) -> Reply {
        let (index, action) = self
            .record
            .action(name)
            .ok_or_else(|| format!("it has no action `{name}`"))?;
        if action.state != ActionState::InDoubt
            || attempt.is_some_and(|number| number != action.attempts)
        {
            return Err(format!(
                "too late: attempt {} of `{name}` is not in doubt",
                attempt.unwrap_or(action.attempts)
            ));
        }
        let undone = |undo: &UndoRecord| matches!(undo.state, UndoState::Done | UndoState::Waived);
        if action.undo.as_ref().is_some_and(undone) {
            return Err(format!("too late: `{name}` is undone"));
        }
        let verdict = if applied {
            let what = format!("the output of `{name}`");
            check_value(&what, output, self.limits.output, "output")
                .map_err(|limit| limit.to_string())?;
            Verdict::Applied(output.clone())
        } else {
            Verdict::NotApplied
        };
        self.settle_doubt(index, verdict);
        Ok(if applied {
            "it took effect"
        } else {
            "it did not take effect"
        }
        .to_owned())
    }

    fn waive(&mut self, name: &str) -> Reply {
        let (index, action) = self
            .record
            .action(name)
            .ok_or_else(|| format!("it has no action `{name}`"))?;
        match &action.undo {
            Some(undo)
                if undo.state == UndoState::Failed
                    || (undo.state == UndoState::None && undo.attempts > 0) =>
            {
                self.set_at(Task::to_undo(index), None);
                self.set_undo_state(index, UndoState::Waived);
                Ok(format!("`{name}` need not be undone"))
            }
            _ => Err(format!("the undo of `{name}` has not failed")),
        }
    }
}
