//! Milestones of a struct and of an enum, and graphs in place.

use milestone_runtime::{Definition, prelude::*};

use crate::bank::{self, Balance, audit, credit, notify};

/// Money from one account to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Milestone)]
#[milestone(
    bank::debit -> (credit, warn: notify -> bank::r#move) -> audit -> thank: notify;
    warn -> thank,
    name = "bank.transfer",
)]
pub struct Transfer {
    amount: i64,
}

impl Transfer {
    /// A transfer of that much.
    #[must_use]
    pub const fn new(amount: i64) -> Self {
        Self { amount }
    }

    /// How much it is.
    #[must_use]
    pub const fn amount(&self) -> i64 {
        self.amount
    }
}

/// What a clerk does in the evening.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Milestone)]
#[milestone(notify -> (audit, bank::r#move))]
pub enum Evening {
    /// The short way.
    Short,
    /// The long way.
    Long,
}

/// A graph for the same type, in place.
pub fn plain() -> Definition<Transfer, Balance> {
    milestone!(bank::debit -> credit)
}

/// A graph for any type, with two outcomes.
pub fn any<P>() -> Definition<P, (String, ())> {
    milestone!(<first: audit; second: notify>).named("any")
}
