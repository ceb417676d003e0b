//! A started milestone: its state, and its outcome.

use std::sync::Arc;

use milestone_core::record::{AttemptError, MilestoneId, MilestoneRecord, Status, Unreadable};

use crate::{error::Error, runtime::Runtime, store::StoreError};

/// A started milestone, by which it is asked for its state and its outcome.
pub struct Handle<O> {
    pub(crate) runtime: Runtime,
    id: MilestoneId,
    decode: fn(&MilestoneRecord) -> Result<O, String>,
}

impl<O> Handle<O> {
    pub(crate) fn new(
        runtime: Runtime,
        id: MilestoneId,
        decode: fn(&MilestoneRecord) -> Result<O, String>,
    ) -> Self {
        Self {
            runtime,
            id,
            decode,
        }
    }

    /// Its id.
    pub fn id(&self) -> &MilestoneId {
        &self.id
    }

    /// Its state now, read from the database.
    ///
    /// # Errors
    /// If it is gone, or the database does not answer.
    pub async fn status(&self) -> Result<Status, OutcomeError> {
        Ok(self.record().await?.state)
    }

    /// The whole document, read from the database.
    ///
    /// # Errors
    /// If it is gone, or the database does not answer.
    pub async fn record(&self) -> Result<MilestoneRecord, OutcomeError> {
        match self.runtime.get(self.id.clone()).await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(OutcomeError::Removed {
                id: self.id.clone(),
            }),
            Err(error) => Err(OutcomeError::from(error)),
        }
    }

    /// Waits until it has ended, and gives the output of its last action; of several last ones a tuple. A milestone that waits for an
    /// operator is waited for.
    ///
    /// # Errors
    /// If it ended otherwise, as is said; if it is gone; if its output does not fit the type.
    pub async fn outcome(&self) -> Result<O, OutcomeError> {
        let ended = self.runtime.wait(self.id.clone()).await?;
        let record = ended.outline();
        match record.state {
            Status::Completed => (self.decode)(record).map_err(|reason| OutcomeError::Output {
                id: self.id.clone(),
                reason,
            }),
            Status::Cancelled => Err(OutcomeError::Cancelled {
                id: self.id.clone(),
            }),
            state => {
                if let Some(unwind) = record.unwind.as_ref().filter(|unwind| unwind.is_overdue()) {
                    return Err(OutcomeError::Overdue {
                        id: self.id.clone(),
                        reason: unwind.reason.clone(),
                    });
                }
                let failed = failed_attempt(record);
                let (action, error) = failed.map_or_else(Default::default, |attempt| {
                    (
                        attempt.action.clone(),
                        attempt.error.clone().unwrap_or_default(),
                    )
                });
                let error = Box::new(error);
                if state == Status::Undone {
                    Err(OutcomeError::Undone {
                        id: self.id.clone(),
                        action,
                        error,
                    })
                } else {
                    Err(OutcomeError::Failed {
                        id: self.id.clone(),
                        action,
                        error,
                    })
                }
            }
        }
    }

    /// Waits until it has ended, and gives the whole document.
    ///
    /// # Errors
    /// If it is gone, or this version cannot read it.
    pub async fn ended(&self) -> Result<Arc<MilestoneRecord>, OutcomeError> {
        let ended = self.runtime.wait(self.id.clone()).await?;
        Ok(Arc::new(ended.whole()))
    }
}

impl<O> Clone for Handle<O> {
    fn clone(&self) -> Self {
        Self {
            runtime: self.runtime.clone(),
            id: self.id.clone(),
            decode: self.decode,
        }
    }
}

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The newest failed attempt of the first action that failed for good.
fn failed_attempt(record: &MilestoneRecord) -> Option<&milestone_core::record::Attempt> {
    use milestone_core::record::{ActionState, Phase};
    let of = |name: &str| {
        record.report.iter().find(|attempt| {
            attempt.action == name && attempt.phase == Phase::Do && attempt.success != Some(true)
        })
    };
    record
        .actions
        .iter()
        .filter(|action| action.state == ActionState::Failed)
        .find_map(|action| of(&action.name))
        .or_else(|| {
            record
                .report
                .iter()
                .find(|attempt| attempt.success == Some(false))
        })
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutcomeError {
    /// An action failed for good.
    #[error("the milestone {id} failed: `{action}`: {}", error.message)]
    Failed {
        /// The milestone.
        id: MilestoneId,
        /// The action that failed.
        action: String,
        /// Its error.
        error: Box<AttemptError>,
    },
    /// An action failed for good, and what was done is undone.
    #[error("the milestone {id} was undone, since `{action}` failed: {}", error.message)]
    Undone {
        /// The milestone.
        id: MilestoneId,
        /// The action that failed.
        action: String,
        /// Its error.
        error: Box<AttemptError>,
    },
    /// Its deadline has passed before it was over; what was done is undone, where an undo was given.
    #[error("the milestone {id} was not over in time: {reason}")]
    Overdue {
        /// The milestone.
        id: MilestoneId,
        /// When it was to be over, for people.
        reason: String,
    },
    /// It was cancelled.
    #[error("the milestone {id} was cancelled")]
    Cancelled {
        /// The milestone.
        id: MilestoneId,
    },
    /// There is no such milestone, or no longer.
    #[error("the milestone {id} does not exist, or no longer")]
    Removed {
        /// The milestone.
        id: MilestoneId,
    },
    /// Its output does not fit the type.
    #[error("the output of the milestone {id} does not fit: {reason}")]
    Output {
        /// The milestone.
        id: MilestoneId,
        /// Why.
        reason: String,
    },
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The database says no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime has been closed.
    #[error("the runtime has been closed")]
    Closed,
}

impl OutcomeError {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "failed",
            Self::Undone { .. } => "undone",
            Self::Overdue { .. } => "overdue",
            Self::Cancelled { .. } => "cancelled",
            Self::Removed { .. } => "removed",
            Self::Output { .. } => "output",
            Self::Unreadable(_) => "unreadable",
            Self::Store(error) => error.code(),
            Self::Closed => "closed",
        }
    }
}

impl From<Error> for OutcomeError {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => Self::Store(error),
            Error::Unreadable(error) => Self::Unreadable(error),
            _ => Self::Closed,
        }
    }
}
