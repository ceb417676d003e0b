//! Human-readable ids from one atomic write each: `140625-0003` is the third order of 25 June 2014.
//!
//! A sequence has one counter for each period, a document of its own, which whoever asks first in the period makes. Each id is one
//! `findOneAndUpdate` that counts it up and reads it, so no two ever get the same one, however many ask. What was drawn and is not used is
//! a gap: ids are unique and grow, but not every number need appear.

mod block;
mod error;
mod next_id;
mod period;

use std::{fmt, sync::Arc};

use bson::{Bson, Document, doc};
use jiff::{Zoned, tz::TimeZone};
use mongodb::{
    Collection, Database,
    error::Error,
    options::{ReturnDocument, WriteConcern},
};

use self::period::Period;
pub use self::{block::Ids, error::SequenceError, next_id::NextId};
use super::server_clock::ServerClock;
use crate::store::mongodb::errors::is_duplicate_key;

/// The collection of the counters, where none is named.
pub const DEFAULT_SEQUENCES: &str = "_milestones_.sequences";

/// How many digits a number has at the least, where nothing is said.
const DEFAULT_WIDTH: usize = 4;

/// As many digits as the largest number has.
const WIDEST: usize = 19;

/// How often a counter is made that is gone when it is counted up, since somebody removes it or does not let it be made.
const TRIES: usize = 10;

/// How long the server may look for its majority.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Ids for people, which begin anew with each period: the prefix of the period, a dash, and a number from 1 on.
///
/// ```no_run
/// use milestone_runtime::mongo::{Sequence, jiff::tz::TimeZone};
///
/// # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = mongodb::Client::with_uri_str("mongodb://localhost").await?;
/// let orders = Sequence::daily("orders")
///     .zone(TimeZone::get("Europe/Vienna")?)
///     .on(&client.database("shop"))?;
/// let id = orders.next().await?; // 140625-0001
/// let more: Vec<String> = orders.next_n(100).await?.collect(); // 140625-0002 to 140625-0101
/// # Ok(())
/// # }
/// ```
///
/// It needs no runtime. Cheap to clone: clones share what they know of the server's time. Inside of an action,
/// [`Context::next_id`](crate::action::Context::next_id) gives the same id again when the attempt is repeated.
#[derive(Clone)]
pub struct Sequence {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    period: Period,
    zone: TimeZone,
    width: usize,
    counters: Collection<Document>,
    clock: ServerClock,
}

impl Sequence {
    /// Ids that begin anew each day, as `140625-0001`: year, month and day in two digits each.
    pub fn daily(name: impl Into<String>) -> SequenceBuilder {
        SequenceBuilder::new(name.into(), Period::Daily)
    }

    /// Ids that begin anew each month, as `1406-0001`: year and month in two digits each.
    pub fn monthly(name: impl Into<String>) -> SequenceBuilder {
        SequenceBuilder::new(name.into(), Period::Monthly)
    }

    /// Ids that begin anew whenever the prefix changes, which is a function of the time in the zone of the sequence. Without a prefix, an
    /// id is the number alone.
    ///
    /// ```
    /// use milestone_runtime::mongo::Sequence;
    ///
    /// let weekly = Sequence::new("invoices", |now| now.strftime("%G-W%V").to_string());
    /// let endless = Sequence::new("customers", |_| "C");
    /// # let _ = (weekly, endless);
    /// ```
    #[expect(
        clippy::new_ret_no_self,
        reason = "as `daily` and `monthly`, it does not know its database yet"
    )]
    pub fn new<P: Into<String>>(
        name: impl Into<String>,
        prefix: impl Fn(&Zoned) -> P + Send + Sync + 'static,
    ) -> SequenceBuilder {
        let prefix = Arc::new(move |now: &Zoned| prefix(now).into());
        SequenceBuilder::new(name.into(), Period::Custom(prefix))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The collection of its counters, with the database in front.
    pub(crate) fn counters(&self) -> String {
        self.inner.counters.namespace().to_string()
    }

    /// The next id of the present period. The period is told by the clock of the database server, in the zone of the sequence.
    ///
    /// # Errors
    /// If the database does not answer, or does not take the write. The number may be drawn all the same, which leaves a gap.
    pub async fn next(&self) -> Result<String, SequenceError> {
        Ok(self.draw(1).await?.id(0))
    }

    /// The next `n` ids of the present period, in order, for one write. None, if `n` is 0, and nothing is written.
    ///
    /// # Errors
    /// As [`Sequence::next`].
    pub async fn next_n(&self, n: u32) -> Result<Ids, SequenceError> {
        match n {
            0 => Ok(Ids::none()),
            n => self.draw(n).await,
        }
    }

    /// Removes the counters of the periods whose prefix comes before this one, as texts are ordered, in one call, and says how many there
    /// were. The counter of the present period stays in any case. Where a prefix is a function of one's own, it must be one whose order is
    /// that of the time.
    ///
    /// A removed period begins at 1 again if anybody asks for an id of it. Nobody does whose clock is the server's, but leave it a while
    /// after the end of a period: purge those of the last year, not those of yesterday.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn purge_before(&self, prefix: &str) -> Result<u64, SequenceError> {
        let inner = &*self.inner;
        let present = period::counter(&inner.name, &self.prefix().await?);
        let range = period::before(&inner.name, prefix, &present);
        let deleted = inner.counters.delete_many(range).write_concern(concern());
        Ok(deleted
            .await
            .map_err(|error| self.error(error))?
            .deleted_count)
    }

    async fn prefix(&self) -> Result<String, SequenceError> {
        let now = self.inner.clock.now().await;
        let now = now.map_err(|error| self.error(error))?;
        let zoned = period::zoned(now, &self.inner.zone).map_err(|error| SequenceError::Time {
            name: self.inner.name.clone(),
            reason: error.to_string(),
        })?;
        Ok(self.inner.period.prefix(&zoned))
    }

    async fn draw(&self, n: u32) -> Result<Ids, SequenceError> {
        let inner = &*self.inner;
        let prefix = self.prefix().await?;
        let counter = period::counter(&inner.name, &prefix);
        let drawn = self.count_up(&counter, n).await;
        let drawn = drawn.map_err(|error| self.error(error))?;
        let last = drawn.as_ref().and_then(|counter| counter.get("last"));
        match last {
            Some(Bson::Int64(last)) if *last >= i64::from(n) => {
                Ok(Ids::new(prefix, *last, n, inner.width))
            }
            other => Err(SequenceError::Counter {
                counter,
                collection: self.counters(),
                found: other.map_or_else(|| "absent".to_owned(), ToString::to_string),
            }),
        }
    }

    /// The counter as it is after `n` more. Not by an upsert: where two race for the first one of a period, a server may tell one of them of
    /// a duplicate, or apply the write and tell nothing of it, by which a number would be lost.
    async fn count_up(&self, counter: &str, n: u32) -> Result<Option<Document>, Error> {
        let counters = &self.inner.counters;
        for _ in 0..TRIES {
            let count = doc! { "$inc": { "last": i64::from(n) } };
            let count = counters.find_one_and_update(doc! { "_id": counter }, count);
            let count = count.return_document(ReturnDocument::After);
            let drawn = count.write_concern(concern()).await?;
            if drawn.is_some() {
                return Ok(drawn);
            }
            let first = doc! { "_id": counter, "last": 0_i64 };
            match counters.insert_one(first).write_concern(concern()).await {
                // Another one has made it in between.
                Err(error) if is_duplicate_key(&error) => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(None)
    }

    fn error(&self, error: Error) -> SequenceError {
        SequenceError::Database {
            name: self.inner.name.clone(),
            error,
        }
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence")
            .field("name", &self.inner.name)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// An id that was given must not be given again after a failover.
fn concern() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern.w_timeout = Some(PATIENCE);
    concern
}

/// A sequence that does not know its database yet.
#[must_use = "a sequence is made by `.on(&database)`"]
pub struct SequenceBuilder {
    name: String,
    period: Period,
    zone: TimeZone,
    width: usize,
}

impl SequenceBuilder {
    fn new(name: String, period: Period) -> Self {
        Self {
            name,
            period,
            zone: TimeZone::UTC,
            width: DEFAULT_WIDTH,
        }
    }

    /// The time zone in which days and months begin. Default UTC, whatever the zone of this machine.
    pub fn zone(mut self, zone: TimeZone) -> Self {
        self.zone = zone;
        self
    }

    /// How many digits a number has at the least, from 0 to 19; zeros stand in front of smaller ones, and a larger one has more. Default 4.
    /// Ids are ordered as texts while their numbers have the same width.
    pub fn width(mut self, digits: usize) -> Self {
        self.width = digits;
        self
    }

    /// Keeps the counters in the collection [`DEFAULT_SEQUENCES`] of a database, given as `&database`, or in a collection of one's own,
    /// given as `&collection`. Many sequences may share it.
    ///
    /// # Errors
    /// If the name is empty, or longer than 200 bytes, or has a `/` or a NUL in it; or if the width is out of its bounds.
    pub fn on(self, counters: impl Into<Counters>) -> Result<Sequence, SequenceError> {
        period::check_name(&self.name).map_err(|reason| SequenceError::Name {
            name: self.name.clone(),
            reason,
        })?;
        if self.width > WIDEST {
            return Err(SequenceError::Width {
                name: self.name,
                width: self.width,
            });
        }
        let Counters(counters) = counters.into();
        Ok(Sequence {
            inner: Arc::new(Inner {
                clock: ServerClock::new(counters.client().clone()),
                name: self.name,
                period: self.period,
                zone: self.zone,
                width: self.width,
                counters,
            }),
        })
    }
}

impl fmt::Debug for SequenceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Where the counters of sequences are: made of a database or of a collection.
#[derive(Clone, Debug)]
pub struct Counters(Collection<Document>);

impl From<&Database> for Counters {
    fn from(database: &Database) -> Self {
        Self(database.collection(DEFAULT_SEQUENCES))
    }
}

impl<T: Send + Sync> From<&Collection<T>> for Counters {
    fn from(collection: &Collection<T>) -> Self {
        Self(collection.clone_with_type())
    }
}
