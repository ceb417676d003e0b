//! A card service: a stand-in that keeps its books in the database of the milestones, as a real one would keep them elsewhere.
//!
//! It takes each key once: a second charge with the same key is refused, whatever became of the first. By its key a charge can be looked
//! up. Every request is written down before it is carried out, so that an example can show how often it was asked.

mod mongo;
mod sqlite;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use milestone_runtime::prelude::*;

use mongo::MongoCards;
use sqlite::SqliteCards;

/// What a card may be charged at once.
pub const LIMIT: i64 = 1_000;

/// What the service says of a charge that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The key that the charge was asked for with.
    pub key: String,
    /// How much.
    pub amount: i64,
}

/// Why the service did not answer with a receipt.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// It has too much to do. Nothing was charged.
    #[error("the card service is busy")]
    Busy,
    /// The card may not be charged so much. Nothing was charged.
    #[error("the card is declined: {0} is more than {LIMIT}")]
    Declined(i64),
    /// The key was used before, so an earlier request was carried out. Nothing was charged now.
    #[error("the key `{0}` was used before")]
    Duplicate(String),
    /// Its file does not answer.
    #[error("the card service does not answer: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// Its database does not answer.
    #[error("the card service does not answer: {0}")]
    Mongo(#[from] mongodb::error::Error),
    /// The URI means no card service.
    #[error("a card service is at `mongodb://host/database`, in `sqlite:file.db` or in `memory:`")]
    Uri,
}

impl CardError {
    /// Whether the charge is to be tried again. Where it is open if the card was charged, it can be looked up.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Busy => Retry::Again,
            Self::Declined(_) | Self::Uri => Retry::Never,
            Self::Duplicate(_) | Self::Sqlite(_) | Self::Mongo(_) => Retry::InDoubt,
        }
    }
}

/// The card service.
#[derive(Clone)]
pub struct Cards {
    books: Books,
    /// How many requests are refused as [`CardError::Busy`] before one is let in.
    busy: Arc<AtomicU32>,
}

#[derive(Clone)]
enum Books {
    Mongo(MongoCards),
    Sqlite(SqliteCards),
}

impl Cards {
    /// Opens the service in the database of a runtime's URI. It refuses the first `busy` requests as [`CardError::Busy`].
    ///
    /// # Errors
    /// If the URI means no card service, or its database cannot be used.
    pub async fn open(uri: &str, busy: u32) -> Result<Self, CardError> {
        let books = if uri.starts_with("mongodb") {
            Books::Mongo(MongoCards::open(uri).await?)
        } else if let Some(path) = uri.strip_prefix("sqlite:") {
            Books::Sqlite(SqliteCards::open(path.strip_prefix("//").unwrap_or(path))?)
        } else if uri == "memory:" {
            Books::Sqlite(SqliteCards::open(":memory:")?)
        } else {
            return Err(CardError::Uri);
        };
        Ok(Self {
            books,
            busy: Arc::new(AtomicU32::new(busy)),
        })
    }

    /// Charges a card, once for each key.
    ///
    /// # Errors
    /// [`CardError`]; some leave open whether the card was charged, see [`CardError::retry`].
    pub async fn charge(&self, key: &str, amount: i64) -> Result<Receipt, CardError> {
        let (before, less) = (Ordering::SeqCst, |busy: u32| busy.checked_sub(1));
        if self.busy.fetch_update(before, before, less).is_ok() {
            return Err(CardError::Busy);
        }
        if amount > LIMIT {
            return Err(CardError::Declined(amount));
        }
        let is_new = match &self.books {
            Books::Mongo(books) => books.charge(key, amount).await?,
            Books::Sqlite(books) => books.charge(key, amount).await?,
        };
        let key = key.to_owned();
        if is_new {
            Ok(Receipt { key, amount })
        } else {
            Err(CardError::Duplicate(key))
        }
    }

    /// Looks a charge up.
    ///
    /// # Errors
    /// If the service does not answer.
    pub async fn find(&self, key: &str) -> Result<Option<Receipt>, CardError> {
        let amount = match &self.books {
            Books::Mongo(books) => books.find(key).await?,
            Books::Sqlite(books) => books.find(key).await?,
        };
        let key = key.to_owned();
        Ok(amount.map(|amount| Receipt { key, amount }))
    }

    /// How many requests to charge with that key were let in, and how many of them charged.
    ///
    /// # Errors
    /// If the service does not answer.
    pub async fn books(&self, key: &str) -> Result<(u64, u64), CardError> {
        let requests = match &self.books {
            Books::Mongo(books) => books.requests(key).await?,
            Books::Sqlite(books) => books.requests(key).await?,
        };
        Ok((requests, u64::from(self.find(key).await?.is_some())))
    }
}
