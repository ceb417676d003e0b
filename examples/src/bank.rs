//! A bank that keeps its accounts in the database of the milestones, and whose writes are idempotent.
//!
//! An action that is `idempotent` may run twice: its worker can die after the action's effect and before its completion is stored.
//! So every booking carries a key, `Context::idempotency_key()`, and the bank remembers the keys of the bookings that it has made.
//! Account and key change in one atomic write, hence a booking is made once, however often it is asked for.

mod mongo;
mod sqlite;

use std::collections::BTreeMap;

use milestone_runtime::{action::ActionError, prelude::*};

use mongo::MongoBank;
use sqlite::SqliteBank;

/// The accounts that there are.
pub const ACCOUNTS: [&str; 2] = ["alice", "bob"];

/// What each of them holds when the bank is opened for the first time.
pub const OPENING: i64 = 10_000;

/// What an account holds after a booking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// The account.
    pub account: String,
    /// What it holds.
    pub amount: i64,
}

/// Why a booking was not made.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    /// There is no such account.
    #[error("there is no account `{0}`")]
    NoAccount(String),
    /// The account holds less than what should be taken from it.
    #[error("`{account}` holds {holds}, which is less than {amount}")]
    TooLittle {
        /// The account.
        account: String,
        /// What it holds.
        holds: i64,
        /// What should be taken.
        amount: i64,
    },
    /// The booking was cancelled before it came.
    #[error("the booking `{0}` was cancelled")]
    Cancelled(String),
    /// SQLite says no.
    #[error("the bank's file: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// MongoDB says no.
    #[error("the bank's database: {0}")]
    Mongo(#[from] mongodb::error::Error),
    /// The URI means no bank.
    #[error("a bank is at `mongodb://host/database`, in `sqlite:file.db` or in `memory:`")]
    Uri,
}

/// What the bank refuses is fatal: trying again would not help. An outage is not.
impl From<BankError> for ActionError {
    #[track_caller]
    fn from(error: BankError) -> Self {
        match error {
            BankError::Sqlite(_) | BankError::Mongo(_) => Self::new(error),
            refused => Self::fatal(refused),
        }
    }
}

/// The bank, in either of the databases that hold milestones.
#[derive(Clone)]
pub enum Bank {
    /// In a collection of MongoDB, beside that of the milestones.
    Mongo(MongoBank),
    /// In tables of the SQLite file that holds the milestones.
    Sqlite(SqliteBank),
}

impl Bank {
    /// Opens the bank in the database of a runtime's URI, with [`ACCOUNTS`] if they are not there yet.
    ///
    /// # Errors
    /// If the URI means no bank, or its database cannot be used.
    pub async fn open(uri: &str) -> Result<Self, BankError> {
        let bank = if uri.starts_with("mongodb") {
            Self::Mongo(MongoBank::open(uri).await?)
        } else if let Some(path) = uri.strip_prefix("sqlite:") {
            Self::Sqlite(SqliteBank::open(path.strip_prefix("//").unwrap_or(path))?)
        } else if uri == "memory:" {
            Self::Sqlite(SqliteBank::open(":memory:")?)
        } else {
            return Err(BankError::Uri);
        };
        for account in ACCOUNTS {
            bank.open_account(account, OPENING).await?;
        }
        Ok(bank)
    }

    /// Opens an account, unless it is there already.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub async fn open_account(&self, account: &str, amount: i64) -> Result<(), BankError> {
        match self {
            Self::Mongo(bank) => bank.open_account(account, amount).await,
            Self::Sqlite(bank) => bank.open_account(account, amount).await,
        }
    }

    /// Takes an amount from an account, or puts it there: once for each key.
    ///
    /// # Errors
    /// If there is no such account, if it holds too little, if the booking was cancelled, or if the database cannot be used.
    pub async fn book(&self, key: &str, account: &str, amount: i64) -> Result<Balance, BankError> {
        match self {
            Self::Mongo(bank) => bank.book(key, account, amount).await,
            Self::Sqlite(bank) => bank.book(key, account, amount).await,
        }
    }

    /// Takes a booking back, if it was made; if it was not, it never will be, since its key is used up. That matters where a booking may
    /// still be under way while it is undone.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub async fn cancel(&self, key: &str, account: &str, amount: i64) -> Result<(), BankError> {
        match self {
            Self::Mongo(bank) => bank.cancel(key, account, amount).await,
            Self::Sqlite(bank) => bank.cancel(key, account).await,
        }
    }

    /// What each account holds.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub async fn balances(&self) -> Result<BTreeMap<String, i64>, BankError> {
        match self {
            Self::Mongo(bank) => bank.balances().await,
            Self::Sqlite(bank) => bank.balances().await,
        }
    }
}

/// The two accounts, the richer one first; `alice`, if they hold the same.
pub fn richer_first(balances: &BTreeMap<String, i64>) -> [String; 2] {
    let mut accounts = ACCOUNTS.map(str::to_owned);
    accounts.sort_by_key(|account| std::cmp::Reverse(balances.get(account).copied()));
    accounts
}
