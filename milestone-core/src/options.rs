//! What a developer says about an action: how often it may run, and how it is retried.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::retry::RetryPolicy;

/// How often an action may run. This decides what happens when its worker dies in the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// At most once: after a crash nobody knows whether it took effect, so it is in doubt until somebody says.
    Plain,
    /// At least once: running it again does no harm, so it is run again.
    Idempotent,
    /// Exactly once for its writes to MongoDB, by a transaction. What else it does may be done again.
    Transactional,
}

impl Mode {
    /// Whether an attempt whose outcome is unknown may simply be run again.
    #[must_use]
    pub const fn repeatable(self) -> bool {
        !matches!(self, Self::Plain)
    }
}

/// The options of an action, as `#[action(..)]` or dynamic registration gives them.
///
/// Every function is `const`, so that generated code holds what the user wrote and nothing else.
///
/// ```
/// use std::time::Duration;
/// use milestone_core::{options::Options, retry::RetryPolicy};
///
/// const DEBIT: Options = Options::idempotent().undo("refund").timeout(Duration::from_secs(30));
/// assert_eq!(DEBIT.effective_retry().max, None, "idempotent: without end");
/// assert_eq!(Options::plain().effective_retry(), RetryPolicy::never());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
#[must_use]
pub struct Options {
    /// How often it may run. Default [`Mode::Plain`].
    pub mode: Mode,
    /// The durable name of the action that undoes this one.
    pub undo: Option<&'static str>,
    /// The durable name of the action that tells whether an attempt in doubt took effect, see [`Verdict`](crate::verdict::Verdict).
    pub verify: Option<&'static str>,
    /// Retries after an error; `None` is the default of the mode, see [`Options::effective_retry`].
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take; `None` is without end.
    pub timeout: Option<Duration>,
    /// The queue in which it waits; `None` is the default queue.
    pub queue: Option<&'static str>,
    /// How many may run at once in one worker; `None` is as many as the worker has places.
    pub concurrency: Option<u32>,
}

impl Options {
    /// A plain action: at most once.
    pub const fn plain() -> Self {
        Self {
            mode: Mode::Plain,
            undo: None,
            verify: None,
            retry: None,
            timeout: None,
            queue: None,
            concurrency: None,
        }
    }

    /// An idempotent action: at least once.
    pub const fn idempotent() -> Self {
        Self {
            mode: Mode::Idempotent,
            ..Self::plain()
        }
    }

    /// A transactional action: exactly once for what it writes in its transaction.
    pub const fn transactional() -> Self {
        Self {
            mode: Mode::Transactional,
            ..Self::plain()
        }
    }

    /// Names the action that undoes this one. It must be idempotent or transactional.
    pub const fn undo(mut self, name: &'static str) -> Self {
        self.undo = Some(name);
        self
    }

    /// Names the action that tells whether an attempt in doubt took effect. Only a plain action has one.
    pub const fn verify(mut self, name: &'static str) -> Self {
        self.verify = Some(name);
        self
    }

    /// Sets how errors are retried.
    pub const fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Sets how long one attempt may take.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the queue in which the action waits.
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Sets how many may run at once in one worker.
    pub const fn concurrency(mut self, places: u32) -> Self {
        self.concurrency = Some(places);
        self
    }

    /// The policy that holds: the one written, else without end for a repeatable action, else no retry.
    pub const fn effective_retry(&self) -> RetryPolicy {
        match self.retry {
            Some(policy) => policy,
            None if self.mode.repeatable() => RetryPolicy::new(),
            None => RetryPolicy::never(),
        }
    }
}
