//! Commands from outside: cancel, pause, resume, retry, resolve and waive. Each goes into the milestone's inbox in one write, is carried
//! out by whoever holds the milestone or takes it next, and is answered.

use std::time::Duration;

use bson::Bson;
use milestone_core::{
    limits::{LimitError, check_command},
    record::{ActionState, Command, MilestoneId, MilestoneRecord, Order, Status},
};
use serde::Serialize;

use crate::{
    action::encode,
    engine::message::Message,
    error::Error,
    handle::Handle,
    ids::random_token,
    runtime::Runtime,
    store::{Sent, StoreError},
};

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The milestone's state does not accept it. Nothing was sent.
    #[error("`{order}` is refused: the milestone {id} is {state}")]
    State {
        /// The milestone.
        id: MilestoneId,
        /// The command.
        order: &'static str,
        /// The state.
        state: Status,
    },
    /// A worker has read it and says why it cannot be done.
    #[error("`{order}` cannot be done for the milestone {id}: {reason}")]
    Refused {
        /// The milestone.
        id: MilestoneId,
        /// The command.
        order: &'static str,
        /// Why.
        reason: String,
    },
    /// There is no such milestone, or no longer.
    #[error("the milestone {id} does not exist, or no longer")]
    Removed {
        /// The milestone.
        id: MilestoneId,
    },
    /// Its inbox is full: no worker reads it.
    #[error("the inbox of the milestone {id} is full: no worker reads its commands")]
    Full {
        /// The milestone.
        id: MilestoneId,
    },
    /// A text or an output in it is too large.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// BSON cannot hold the output in it.
    #[error("{0}")]
    Output(String),
    /// The runtime or the database says no. The command may have been sent: sending another one is safe.
    #[error(transparent)]
    Runtime(#[from] Error),
}

impl CommandError {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::State { .. } => "command_state",
            Self::Refused { .. } => "command_refused",
            Self::Removed { .. } => "removed",
            Self::Full { .. } => "inbox_full",
            Self::Limit(error) => error.code(),
            Self::Output(_) => "output",
            Self::Runtime(error) => error.code(),
        }
    }
}

/// A command that is in the inbox of a milestone.
#[derive(Clone, Debug)]
#[must_use = "a command may be refused: the document tells, see `answer_in`"]
pub struct SentCommand {
    milestone: MilestoneId,
    id: String,
    order: &'static str,
}

impl SentCommand {
    /// The milestone.
    pub const fn milestone(&self) -> &MilestoneId {
        &self.milestone
    }

    /// What became of it, as a document of the milestone says that was read later: what was done, or the error that it was refused with.
    /// `None` while it waits to be carried out.
    pub fn answer_in(&self, record: &MilestoneRecord) -> Option<Result<String, CommandError>> {
        if let Some(answer) = record.answers.iter().find(|answer| answer.id == self.id) {
            return Some(if answer.done {
                Ok(answer.message.clone())
            } else {
                Err(CommandError::Refused {
                    id: self.milestone.clone(),
                    order: self.order,
                    reason: answer.message.clone(),
                })
            });
        }
        // Only the newest answers are kept: of one that is neither there nor waits, nobody can tell more.
        let waits = record.inbox.iter().any(|waiting| waiting.id == self.id);
        (!waits).then(|| Ok("it was carried out, and its answer is no longer kept".to_owned()))
    }
}

impl Runtime {
    /// Sends a command to a milestone and waits until a worker has carried it out; what was done is told. While no worker lives that can
    /// take the milestone, this waits; dropped, the command stays in the inbox and is carried out all the same.
    ///
    /// # Errors
    /// [`CommandError`]: the state does not accept it, or the worker says why it cannot be done.
    pub async fn command(
        &self,
        id: impl Into<MilestoneId>,
        order: Order,
    ) -> Result<String, CommandError> {
        let sent = self.send(id, order).await?;
        let longest = self.inner.shared.config.poll;
        let mut wait = Duration::from_millis(5).min(longest);
        loop {
            let id = sent.milestone.clone();
            let Some(record) = self.get(id.clone()).await? else {
                return Err(CommandError::Removed { id });
            };
            if let Some(answer) = sent.answer_in(&record) {
                return answer;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }

    /// Sends a command to a milestone and does not wait for its answer: it is in the inbox then, and whoever holds the milestone or takes
    /// it next carries it out.
    ///
    /// # Errors
    /// [`CommandError`]: the state does not accept it, or it could not be sent.
    pub async fn send(
        &self,
        id: impl Into<MilestoneId>,
        order: Order,
    ) -> Result<SentCommand, CommandError> {
        let (id, mut order) = (id.into(), order);
        if let Order::Resolve {
            action, attempt, ..
        } = &mut order
        {
            *attempt = Some(self.attempt_in_doubt(&id, action, *attempt).await?);
        }
        let name = order.name();
        let command = Command {
            id: random_token(),
            order,
            by: self.inner.shared.config.name.clone(),
            at: self.inner.shared.clock.now(),
        };
        check_command(&command, &self.inner.shared.config.limits)?;
        let number = command.id.clone();
        match self.deliver(id.clone(), command).await? {
            Sent::Delivered => {}
            Sent::NotFound => return Err(CommandError::Removed { id }),
            Sent::Refused(state) => {
                return Err(CommandError::State {
                    id,
                    order: name,
                    state,
                });
            }
            Sent::Full => return Err(CommandError::Full { id }),
        }
        // Without an engine there is nobody here who could hold it.
        let _ = self.inner.tell.send(Message::Mail { id: id.clone() });
        Ok(SentCommand {
            milestone: id,
            id: number,
            order: name,
        })
    }

    /// The attempt that a `resolve` is about. It is a word about what was seen: sent while the attempt still runs, it could be carried out
    /// after a crash that nobody had seen when it was said.
    async fn attempt_in_doubt(
        &self,
        id: &MilestoneId,
        action: &str,
        attempt: Option<i64>,
    ) -> Result<i64, CommandError> {
        let refused = |reason: String| CommandError::Refused {
            id: id.clone(),
            order: "resolve",
            reason,
        };
        let Some(record) = self.get(id.clone()).await? else {
            return Err(CommandError::Removed { id: id.clone() });
        };
        if record.state.is_terminal() {
            return Err(CommandError::State {
                id: id.clone(),
                order: "resolve",
                state: record.state,
            });
        }
        let (_, found) = record
            .action(action)
            .ok_or_else(|| refused(format!("it has no action `{action}`")))?;
        let number = attempt.unwrap_or(found.attempts);
        if let Some(running) = &found.running {
            return Err(refused(format!(
                "attempt {} of `{action}` is not in doubt: as far as is known it runs, on {}; if that worker is dead, it is in doubt as soon as \
                 another one takes the milestone over",
                running.number, running.worker
            )));
        }
        if found.state != ActionState::InDoubt {
            let state = bson::serialize_to_bson(&found.state).unwrap_or_default();
            let state = state.as_str().unwrap_or("over");
            return Err(refused(format!(
                "`{action}` is not in doubt, it is {state}"
            )));
        }
        if number != found.attempts {
            return Err(refused(format!(
                "attempt {number} of `{action}` is not in doubt, but attempt {}",
                found.attempts
            )));
        }
        Ok(number)
    }

    /// A command that is known by its id may be sent as often as it takes.
    async fn deliver(&self, id: MilestoneId, command: Command) -> Result<Sent, Error> {
        const TRIES: u32 = 5;
        let mut tried = 0;
        loop {
            let (id, command) = (id.clone(), command.clone());
            match self
                .call(|store| async move { store.send(id, command).await })
                .await
            {
                Err(Error::Store(
                    error @ (StoreError::Unreachable { .. } | StoreError::MongoDb(_)),
                )) if tried < TRIES => {
                    tried += 1;
                    tracing::debug!(%error, "a command is sent again");
                    tokio::time::sleep(Duration::from_millis(100) * tried).await;
                }
                result => return result,
            }
        }
    }
}

impl<O> Handle<O> {
    /// Cancels the milestone: nothing new begins, what runs is asked to stop, what was done is undone where an undo was given, and it ends
    /// `cancelled`. This returns when that has begun.
    ///
    /// # Errors
    /// As [`Runtime::command`]: it has ended, or is being undone already.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<String, CommandError> {
        self.runtime
            .command(
                self.id().clone(),
                Order::Cancel {
                    reason: reason.into(),
                },
            )
            .await
    }

    /// Pauses the milestone: what runs ends, and nothing new begins until [`Handle::resume`].
    ///
    /// # Errors
    /// As [`Runtime::command`]: it has ended, or is on hold already.
    pub async fn pause(&self, reason: impl Into<String>) -> Result<String, CommandError> {
        self.runtime
            .command(
                self.id().clone(),
                Order::Pause {
                    reason: reason.into(),
                },
            )
            .await
    }

    /// Goes on after a pause.
    ///
    /// # Errors
    /// As [`Runtime::command`]: it is not on hold.
    pub async fn resume(&self) -> Result<String, CommandError> {
        self.runtime.command(self.id().clone(), Order::Resume).await
    }

    /// Goes on from what failed, in a milestone that is `failed`; in one that is being undone, tries again what could not be undone.
    ///
    /// # Errors
    /// As [`Runtime::command`]: nothing of it has failed.
    pub async fn retry(&self) -> Result<String, CommandError> {
        self.runtime.command(self.id().clone(), Order::Retry).await
    }

    /// Says that an action that is in doubt took effect, and what it gave.
    ///
    /// # Errors
    /// As [`Runtime::command`]: the action is not in doubt, or BSON cannot hold the output.
    pub async fn resolve_applied<T: Serialize + Sync>(
        &self,
        action: impl Into<String>,
        output: &T,
    ) -> Result<String, CommandError> {
        let output =
            encode(output).map_err(|failure| CommandError::Output(failure.error.message))?;
        self.resolve(action.into(), true, output).await
    }

    /// Says that an action that is in doubt did not take effect and no longer can: it is run again.
    ///
    /// # Errors
    /// As [`Runtime::command`]: the action is not in doubt.
    pub async fn resolve_not_applied(
        &self,
        action: impl Into<String>,
    ) -> Result<String, CommandError> {
        self.resolve(action.into(), false, Bson::Null).await
    }

    async fn resolve(
        &self,
        action: String,
        applied: bool,
        output: Bson,
    ) -> Result<String, CommandError> {
        let order = Order::Resolve {
            action,
            attempt: None,
            applied,
            output,
        };
        self.runtime.command(self.id().clone(), order).await
    }

    /// Says that an action whose undo has failed need not be undone.
    ///
    /// # Errors
    /// As [`Runtime::command`]: its undo has not failed.
    pub async fn waive(&self, action: impl Into<String>) -> Result<String, CommandError> {
        self.runtime
            .command(
                self.id().clone(),
                Order::Waive {
                    action: action.into(),
                },
            )
            .await
    }
}
