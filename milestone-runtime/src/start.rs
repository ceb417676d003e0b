//! Starting a milestone: it is stored, or the error says for sure whether it may be.

mod in_transaction;

use std::{future::IntoFuture, pin::Pin, sync::Arc, time::Duration};

use bson::Bson;
use milestone_core::{
    machine::{NewMilestone, StartError as Invalid},
    record::{MilestoneId, MilestoneRecord, Unreadable},
};

use crate::{handle::Handle, runtime::Runtime, store::StoreError};

pub use self::in_transaction::StartInError;

/// Why a milestone was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its name, its graph, its size or its depth is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// BSON cannot hold its parameters. Nothing was sent.
    #[error("BSON cannot hold the parameters of type `{kind}`: {reason}")]
    Parameters {
        /// The type of the parameters.
        kind: &'static str,
        /// Why, with the place as far as it is known.
        reason: String,
    },
    /// For sure it is not stored: it was refused, or never sent.
    #[error("the milestone {id} is not stored: {error}")]
    NotStored {
        /// Its id.
        id: MilestoneId,
        /// Why.
        error: Arc<StoreError>,
    },
    /// The reply was lost, so it may be stored or not. Start it again with this id: it is then stored once.
    #[error(
        "nobody knows whether the milestone {id} is stored; start it again with this id to be sure: {error}"
    )]
    Unknown {
        /// Its id.
        id: MilestoneId,
        /// What happened last.
        error: Arc<StoreError>,
    },
    /// A milestone of this id exists, and it is another one.
    #[error("the id {id} is taken by a milestone with {conflict}")]
    Conflict {
        /// The id.
        id: MilestoneId,
        /// What is different.
        conflict: Conflict,
    },
    /// A milestone of this id exists, and this version cannot read it.
    #[error(transparent)]
    Unreadable(Unreadable),
    /// The runtime has been closed.
    #[error("the runtime has been closed")]
    Closed,
}

impl StartError {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid(error) => error.code(),
            Self::Parameters { .. } => "parameters",
            Self::NotStored { .. } => "not_stored",
            Self::Unknown { .. } => "unknown",
            Self::Conflict { .. } => "conflict",
            Self::Unreadable(_) => "unreadable",
            Self::Closed => "closed",
        }
    }
}

/// What is different about the milestone that has the id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// Its type.
    #[error("the type `{existing}`, not `{new}`")]
    Kind {
        /// The type of the one that exists.
        existing: String,
        /// The type of the new one.
        new: String,
    },
    /// Its parameters.
    #[error("the same type and other parameters")]
    Parameters,
}

/// A start that is ready: awaited, it stores the milestone.
#[must_use = "a milestone is started by `.await`"]
pub struct Start<O> {
    pub(crate) runtime: Runtime,
    pub(crate) new: Result<NewMilestone, StartError>,
    pub(crate) decode: fn(&MilestoneRecord) -> Result<O, String>,
}

impl<O> Start<O> {
    /// Gives it an id of the caller's, which then is the idempotency key: starting twice with one id, the same type and equal parameters
    /// attaches to the first, as long as its document lives. From 1 to 512 bytes.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        if let Ok(new) = &mut self.new {
            new.id = MilestoneId::String(id.into());
        }
        self
    }

    /// Sets how long the milestone may take, from its start on. After that nothing of it begins any more, what runs is asked to stop, and what
    /// was done is undone: it ends `undone`, or `failed` where the graph has no undo. Default: without end, or what
    /// `#[milestone(.., deadline = "..")]` says.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        if let Ok(new) = &mut self.new {
            new.deadline = Some(deadline);
        }
        self
    }

    /// Adds a label, by which milestones can be listed.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Ok(new) = &mut self.new {
            new.labels.insert(name.into(), value.into());
        }
        self
    }
}

impl<O: Send + 'static> IntoFuture for Start<O> {
    type Output = Result<Handle<O>, StartError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let new = self.new?;
            let id = new.id.clone();
            self.runtime.store_new(new).await?;
            Ok(Handle::new(self.runtime, id, self.decode))
        })
    }
}

pub(crate) fn new_milestone(
    kind: &str,
    parameters: Bson,
    plan: milestone_core::graph::Plan,
) -> NewMilestone {
    NewMilestone {
        parameters,
        ..NewMilestone::new(kind, plan)
    }
}

/// Whether a second start of an id means the milestone that exists.
pub(crate) fn same_start(
    existing: &MilestoneRecord,
    new: &MilestoneRecord,
) -> Result<(), Conflict> {
    if existing.kind != new.kind {
        return Err(Conflict::Kind {
            existing: existing.kind.clone(),
            new: new.kind.clone(),
        });
    }
    if !same_value(&existing.parameters, &new.parameters) {
        return Err(Conflict::Parameters);
    }
    Ok(())
}

/// Whether two values are equal, as unordered maps; NaN equals itself.
fn same_value(a: &Bson, b: &Bson) -> bool {
    match (a, b) {
        (Bson::Document(a), Bson::Document(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, value)| b.get(key).is_some_and(|other| same_value(value, other)))
        }
        (Bson::Array(a), Bson::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Bson::Double(a), Bson::Double(b)) => a.total_cmp(b).is_eq() || (a.is_nan() && b.is_nan()),
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use bson::bson;

    use super::*;

    #[test]
    fn maps_are_equal_in_any_order_and_lists_are_not() {
        assert!(same_value(
            &bson!({ "a": 1, "b": [1, { "c": 2, "d": f64::NAN }] }),
            &bson!({ "b": [1, { "d": f64::NAN, "c": 2 }], "a": 1 })
        ));
        assert!(!same_value(&bson!([1, 2]), &bson!([2, 1])));
        assert!(!same_value(
            &bson!({ "a": 1 }),
            &bson!({ "a": 1, "b": null })
        ));
    }
}
