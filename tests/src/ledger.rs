//! Actions for tests, and what they did.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::Bson;
use milestone_runtime::{
    Method,
    action::{ActionError, Options, RetryPolicy},
};

/// An idempotent action that is retried at once.
pub const fn quick() -> Options {
    Options::idempotent().retry(
        RetryPolicy::new()
            .base(Duration::from_millis(10))
            .cap(Duration::from_millis(20)),
    )
}

/// What the actions of a test did, in order.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: Arc<Mutex<Vec<String>>>,
}

impl Ledger {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry.
    pub fn note(&self, entry: impl Into<String>) {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry.into());
    }

    /// All entries, the oldest first.
    pub fn entries(&self) -> Vec<String> {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How often an entry is there.
    pub fn count(&self, entry: &str) -> usize {
        self.entries()
            .iter()
            .filter(|noted| *noted == entry)
            .count()
    }

    /// Where the first of those entries is.
    ///
    /// # Panics
    /// If it is not there.
    pub fn position(&self, entry: &str) -> usize {
        let entries = self.entries();
        entries
            .iter()
            .position(|noted| noted == entry)
            .unwrap_or_else(|| panic!("`{entry}` is not in {entries:?}"))
    }

    /// An action that notes its name and gives an output.
    pub fn gives(&self, name: &str, output: impl Into<Bson>) -> Method {
        let (ledger, entry, output) = (self.clone(), name.to_owned(), output.into());
        Method::new(name, move |_| {
            ledger.note(&*entry);
            let output = output.clone();
            async move { Ok::<_, ActionError>(output) }
        })
        .options(quick())
    }

    /// An action that notes its name and fails so many times before it gives its name.
    pub fn fails_first(&self, name: &str, times: usize) -> Method {
        let (ledger, entry, left) = (
            self.clone(),
            name.to_owned(),
            Arc::new(AtomicUsize::new(times)),
        );
        Method::new(name, move |_| {
            ledger.note(&*entry);
            let fails = left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
            let entry = entry.clone();
            async move {
                if fails {
                    Err(ActionError::new(format!("{entry} does not work yet")))
                } else {
                    Ok(entry)
                }
            }
        })
        .options(quick())
    }

    /// An action that notes its name and fails for good.
    pub fn fails_for_good(&self, name: &str) -> Method {
        let (ledger, entry) = (self.clone(), name.to_owned());
        Method::new(name, move |_| {
            ledger.note(&*entry);
            let error = ActionError::fatal(format!("{entry} cannot work"));
            async move { Err::<(), _>(error) }
        })
        .options(quick())
    }
}
