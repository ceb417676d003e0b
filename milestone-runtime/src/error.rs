//! What can go wrong when a runtime is built or asked something.

use milestone_core::{graph::GraphError, record::Unreadable};

use crate::{mongo::FieldSyncError, store::StoreError};

/// An error of a runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two actions have one durable name.
    #[error(
        "two actions are named `{name}`: at {first} and at {second}; give one of them another with `#[action(name = \"..\")]`"
    )]
    TwoActions {
        /// The name.
        name: String,
        /// Where the first is registered.
        first: String,
        /// Where the second is registered.
        second: String,
    },
    /// An action takes a `State<T>` that the builder was not given.
    #[error(
        "the action `{action}` takes `State<{state}>`, which the runtime was not given: add `.state(..)` to its builder, or `.client()` if it runs nothing"
    )]
    MissingState {
        /// The action.
        action: String,
        /// The type of the state.
        state: &'static str,
    },
    /// The builder was given two values of one type.
    #[error(
        "the builder was given two states of the type `{state}`: actions could not tell them apart, so give one of them a type of its own"
    )]
    StateTwice {
        /// The type of the states.
        state: &'static str,
    },
    /// The builder names an action that the binary does not have.
    #[error("there is no action `{name}` in this binary: it has {known}")]
    UnknownAction {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// An action is transactional, and the database has no transactions.
    #[error(
        "the action `{action}` is transactional, but there are no transactions here: {reason}. Use `cx.once(..)`, which does without them (MongoDB of \
         any kind), or an idempotent action; or leave it out by `.actions([..])`, or run nothing by `.client()`"
    )]
    NoTransactions {
        /// The action.
        action: String,
        /// What the database is, and what has transactions.
        reason: String,
    },
    /// A method has the options of a transactional action, but its function takes no transaction.
    #[error(
        "the method `{method}` has the options of a transactional action, but its function takes no transaction: make it with \
         `Method::transactional(\"{method}\", |call, tx| ..)`"
    )]
    NoTransaction {
        /// The method.
        method: String,
    },
    /// A method takes a transaction, but its options are not those of a transactional action.
    #[error(
        "the method `{method}` takes a transaction, but its options say otherwise: begin them with `Options::transactional()`"
    )]
    TransactionForNothing {
        /// The method.
        method: String,
    },
    /// A setting is out of its bounds.
    #[error("`{setting}` cannot be {value}: {accepted}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The value.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// There is no executor to run actions on.
    #[error(
        "a runtime is built inside of a tokio runtime, which then runs its actions: use `#[tokio::main]`"
    )]
    NoExecutor,
    /// A name or a graph that cannot be used.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Fields cannot be kept in sync.
    #[error(transparent)]
    FieldSync(#[from] FieldSyncError),
    /// The database says no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored milestone cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The runtime has been closed.
    #[error("the runtime has been closed")]
    Closed,
}

impl Error {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TwoActions { .. } => "two_actions",
            Self::MissingState { .. } => "missing_state",
            Self::StateTwice { .. } => "state_twice",
            Self::UnknownAction { .. } => "unknown_action",
            Self::NoTransactions { .. } => "no_transactions",
            Self::NoTransaction { .. } => "no_transaction",
            Self::TransactionForNothing { .. } => "transaction_for_nothing",
            Self::Setting { .. } => "setting",
            Self::NoExecutor => "no_executor",
            Self::Graph(error) => error.code(),
            Self::FieldSync(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Unreadable(_) => "unreadable",
            Self::Closed => "closed",
        }
    }
}
