//! Commands from outside, and what became of them.

use bson::{Bson, DateTime};
use serde::{Deserialize, Serialize};

use super::Status;

/// A command in the inbox of a milestone, carried out by whoever holds it or takes it next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// What it is known by: sent twice, it is carried out once.
    pub id: String,
    /// What is to be done.
    pub order: Order,
    /// Who sent it.
    pub by: String,
    /// When it was sent.
    pub at: DateTime,
}

/// What a command asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Order {
    /// Begin nothing new, undo what was done, end cancelled.
    Cancel {
        /// Why, for people.
        reason: String,
    },
    /// Begin nothing new.
    Pause {
        /// Why, for people.
        reason: String,
    },
    /// Go on after a pause.
    Resume,
    /// Go on from what failed: the actions of a failed milestone, or an undo or a verify that has failed for good.
    Retry,
    /// Say whether an action in doubt took effect.
    Resolve {
        /// The name of the action.
        action: String,
        /// The number of the attempt; absent is the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<i64>,
        /// Whether it took effect.
        applied: bool,
        /// Its output, if it took effect.
        #[serde(default)]
        output: Bson,
    },
    /// Say that an action need not be undone.
    Waive {
        /// The name of the action.
        action: String,
    },
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The command's id.
    pub id: String,
    /// What was asked for, as [`Order::name`] says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub order: String,
    /// Who asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Whether it was carried out.
    pub done: bool,
    /// What was done, or why not.
    pub message: String,
    /// When.
    pub at: DateTime,
}

impl Order {
    /// The states in which a store accepts it. Others are refused with an error at once.
    #[must_use]
    pub fn accepted_in(&self) -> Vec<Status> {
        match self {
            Self::Retry => vec![Status::Failed, Status::Undoing, Status::InDoubt],
            _ => Status::ALL
                .into_iter()
                .filter(|status| !status.is_terminal())
                .collect(),
        }
    }

    /// Its name, for people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancel",
            Self::Pause { .. } => "pause",
            Self::Resume => "resume",
            Self::Retry => "retry",
            Self::Resolve { .. } => "resolve",
            Self::Waive { .. } => "waive",
        }
    }
}
