//! What a write that is applied once can fail with.

use std::{fmt, sync::Arc, time::Duration};

use bson::Bson;

use crate::{action::ActionError, mongo::trace::MARKERS, store::StoreError};

/// A document, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The database and the collection.
    pub collection: String,
    /// The `_id`.
    pub id: String,
}

impl Target {
    pub(crate) fn new(database: &str, collection: &str, id: &Bson) -> Self {
        Self {
            collection: format!("{database}.{collection}"),
            id: id.to_string(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the document {} of {}", self.id, self.collection)
    }
}

/// An error of [`Context::once`](crate::action::Context::once). Returned from an action it is fatal where the program must be changed
/// ([`OnceError::is_fatal`]), and else retried as the action's options say.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The milestones are not in MongoDB.
    #[error(
        "`cx.once(..)` needs milestones that are stored in MongoDB, in the cluster of {collection}: give the runtime a URI that begins with `mongodb://`"
    )]
    NotMongoDb {
        /// The collection.
        collection: String,
    },
    /// The collection is in another cluster than the milestones.
    #[error(
        "{collection} is not in the cluster of the milestones ({theirs}; the milestones are in {ours}): a write there cannot be fenced by their time, so keep \
         both in one cluster, or make the write idempotent in another way"
    )]
    OtherCluster {
        /// The collection.
        collection: String,
        /// What its server says of itself.
        theirs: String,
        /// What that of the milestones says of itself.
        ours: String,
    },
    /// The filter does not name one document.
    #[error("the filter for {collection} cannot be used: {reason}")]
    Filter {
        /// The collection.
        collection: String,
        /// Why.
        reason: &'static str,
    },
    /// The update, or the document, is not one that can be applied once.
    #[error("the change of {target} cannot be applied once: {reason}")]
    Change {
        /// The document.
        target: Target,
        /// Why, and what to do.
        reason: String,
    },
    /// The attempt writes the same document a second time.
    #[error(
        "`{action}` writes {target} for the second time in one attempt: a repeated attempt could not tell the two apart, so give one of them a \
         `.label(\"..\")`"
    )]
    Twice {
        /// The action.
        action: String,
        /// The document.
        target: Target,
    },
    /// The call is not for this phase.
    #[error("{reason}")]
    Phase {
        /// Why, and what to do.
        reason: &'static str,
    },
    /// There is no such document. This is fatal: who expects it to come later returns [`ActionError::retry_after`] instead.
    #[error("there is no {}; where one is to be made, say it by `.or_insert(..)`", without_article(.target))]
    Missing {
        /// The document.
        target: Target,
    },
    /// The document is there, but the other conditions of the filter did not hold: the write was not applied.
    #[error("{target} does not meet the conditions of the filter")]
    Unmatched {
        /// The document.
        target: Target,
    },
    /// A document that somebody else made has the `_id`.
    #[error("{target} is there already, and was not inserted by this action")]
    Exists {
        /// The document.
        target: Target,
    },
    /// A unique index of the collection has the key already.
    #[error("{target} cannot be written, since a unique index has its key already: {reason}")]
    Duplicate {
        /// The document.
        target: Target,
        /// What the server says.
        reason: String,
    },
    /// The validator of the collection does not take the document.
    #[error(
        "the validator of the collection does not take the change of {target}: {reason}; it must allow the field `{MARKERS}`, in a JSON schema by \
         `\"{MARKERS}\": {{ \"bsonType\": \"array\" }}` under `properties`"
    )]
    Validator {
        /// The document.
        target: Target,
        /// What the server says.
        reason: String,
    },
    /// The server does not take the write.
    #[error("the server does not take the change of {target}: {reason} (code {code})")]
    Refused {
        /// The document.
        target: Target,
        /// The server's code, 0 if it is the driver's.
        code: i32,
        /// What it says.
        reason: String,
        /// Whether no document would take it.
        is_malformed: bool,
    },
    /// The document has as many markers as it may have.
    #[error(
        "{target} has {markers} markers of writes that may still be repeated, which is as many as it may have: it is written too often for the clock \
         skew of the runtime, or what should remove them does not run"
    )]
    Crowded {
        /// The document.
        target: Target,
        /// How many it has.
        markers: usize,
    },
    /// The lease is lost, or was not renewed in time: another worker may run the milestone.
    #[error(
        "the lease of the milestone was not renewed, so {target} is not written: another worker may run it"
    )]
    Lost {
        /// The document.
        target: Target,
    },
    /// The server's clock is ahead.
    #[error(
        "the server refuses the change of {target} as too late: its clock is ahead of that of the milestones' server by more than a quarter of the \
         runtime's `clock_skew`, or the server is very slow"
    )]
    Late {
        /// The document.
        target: Target,
    },
    /// It could not be done in time, or nobody knows whether it was: it can be tried again.
    #[error("it is not known whether {target} was changed: {reason}")]
    Unsettled {
        /// The document.
        target: Target,
        /// Why.
        reason: String,
    },
    /// The store of the milestones says no.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

fn without_article(target: &Target) -> String {
    target.to_string().replacen("the ", "", 1)
}

impl OnceError {
    /// A stable code, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotMongoDb { .. } => "once_not_mongodb",
            Self::OtherCluster { .. } => "once_other_cluster",
            Self::Filter { .. } => "once_filter",
            Self::Change { .. } => "once_change",
            Self::Twice { .. } => "once_twice",
            Self::Phase { .. } => "once_phase",
            Self::Missing { .. } => "once_missing",
            Self::Unmatched { .. } => "once_unmatched",
            Self::Exists { .. } => "once_exists",
            Self::Duplicate { .. } => "once_duplicate",
            Self::Validator { .. } => "once_validator",
            Self::Refused { .. } => "once_refused",
            Self::Crowded { .. } => "once_crowded",
            Self::Lost { .. } => "once_lost",
            Self::Late { .. } => "once_late",
            Self::Unsettled { .. } => "once_unsettled",
            Self::Store(error) => error.code(),
        }
    }

    /// Whether the program must be changed, so that no retry would mend it.
    pub const fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::NotMongoDb { .. }
                | Self::OtherCluster { .. }
                | Self::Filter { .. }
                | Self::Change { .. }
                | Self::Twice { .. }
                | Self::Phase { .. }
                | Self::Missing { .. }
                | Self::Refused {
                    is_malformed: true,
                    ..
                }
        )
    }

    /// How long to wait before it is tried again, where the action's options should not say.
    pub fn delay(&self) -> Option<Duration> {
        // Spread, since all who wait for one document get the error at the same time.
        matches!(self, Self::Crowded { .. })
            .then(|| Duration::from_secs(5).mul_f64(1.0 + fastrand::f64()))
    }

    /// Whether it says for sure that the write was not applied, and that the same call would not be either as the document is now.
    pub(super) const fn is_an_answer(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. } | Self::Unmatched { .. } | Self::Exists { .. }
        )
    }
}

impl From<OnceError> for ActionError {
    #[track_caller]
    fn from(error: OnceError) -> Self {
        match error.delay() {
            _ if error.is_fatal() => Self::fatal(error),
            Some(delay) => Self::retry_after(delay, error),
            None => Self::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::new("bank", "accounts", &Bson::from("ann"))
    }

    #[test]
    fn an_error_names_the_document_and_what_to_do() {
        let missing = OnceError::Missing { target: target() };
        assert_eq!(
            missing.to_string(),
            r#"there is no document "ann" of bank.accounts; where one is to be made, say it by `.or_insert(..)`"#
        );
        let twice = OnceError::Twice {
            action: "debit".to_owned(),
            target: target(),
        };
        let expected = r#"`debit` writes the document "ann" of bank.accounts for the second time in one attempt: a repeated attempt could not tell the two apart, so give one of them a `.label("..")`"#;
        assert_eq!(twice.to_string(), expected);
    }

    #[test]
    fn what_follows_is_said_by_the_error() {
        let fatal = ActionError::from(OnceError::Phase { reason: "no" });
        assert!(fatal.is_fatal());
        let again = ActionError::from(OnceError::Unmatched { target: target() });
        assert!(!again.is_fatal() && again.delay().is_none());
        let crowded = ActionError::from(OnceError::Crowded {
            target: target(),
            markers: 500,
        });
        assert!(crowded.delay() >= Some(Duration::from_secs(5)));
    }
}
