//! The error of an action that wants a say in what happens next.

use std::{
    any::type_name, backtrace::Backtrace, error::Error, fmt, panic::Location, time::Duration,
};

type BoxError = Box<dyn Error + Send + Sync>;

/// An error of an action, which says what should happen next: nothing (fatal), a look at whether it took effect (in doubt), a retry after a
/// time, or a retry as usual.
///
/// It remembers the place and the stack. Anywhere in the chain of another error it is found and heeded. `?` makes one of the errors
/// that the crates behind this one give, and of strings; [`ActionError::new`] and [`OrFail`] make one of any other.
pub struct ActionError {
    source: BoxError,
    kind: &'static str,
    fatal: bool,
    in_doubt: bool,
    retry_after: Option<Duration>,
    location: &'static Location<'static>,
    backtrace: Box<Backtrace>,
}

impl ActionError {
    /// An error that is retried as the action's options say.
    #[track_caller]
    pub fn new<E: Into<BoxError>>(error: E) -> Self {
        Self {
            source: error.into(),
            kind: match type_name::<E>() {
                "&str" | "alloc::string::String" => "ActionError",
                name => name,
            },
            fatal: false,
            in_doubt: false,
            retry_after: None,
            location: Location::caller(),
            backtrace: Box::new(Backtrace::force_capture()),
        }
    }

    /// An error that no retry would mend: the action has failed for good.
    #[track_caller]
    pub fn fatal(error: impl Into<BoxError>) -> Self {
        Self {
            fatal: true,
            ..Self::new(error)
        }
    }

    /// An error that leaves open whether the action took effect, such as a connection that broke between a request and its reply. A plain
    /// action is then in doubt, and is not run again before its `verify` or an operator has told; for an idempotent one it is an error as
    /// any other.
    #[track_caller]
    pub fn in_doubt(error: impl Into<BoxError>) -> Self {
        Self {
            in_doubt: true,
            ..Self::new(error)
        }
    }

    /// An error after which the action is tried again after `delay`, such as a service's "retry after", and at the
    /// least after a millisecond: what waits for a place has its turn in between. It counts as an attempt.
    #[track_caller]
    pub fn retry_after(delay: Duration, error: impl Into<BoxError>) -> Self {
        Self {
            retry_after: Some(delay),
            ..Self::new(error)
        }
    }

    /// Whether no retry would mend it.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Whether it leaves open whether the action took effect.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// The delay that it asks for.
    pub fn delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Where it was made.
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }

    /// The stack where it was made.
    pub fn backtrace(&self) -> &Backtrace {
        &self.backtrace
    }

    /// The type that it was made of; of a text, `ActionError`.
    pub fn type_name(&self) -> &'static str {
        self.kind
    }

    /// The error within.
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Debug for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActionError")
            .field("source", &self.source)
            .field("fatal", &self.fatal)
            .field("in_doubt", &self.in_doubt)
            .field("retry_after", &self.retry_after)
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}

impl Error for ActionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The text of the error within is this one's own text, so it is not told again as the source.
        self.source.source()
    }
}

macro_rules! from {
    ($($error:ty),+) => {$(
        impl From<$error> for ActionError {
            #[track_caller]
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        }
    )+};
}

from!(
    anyhow::Error,
    crate::mongo::SequenceError,
    BoxError,
    String,
    &str,
    std::io::Error,
    mongodb::error::Error,
    rusqlite::Error,
    bson::error::Error
);

/// Turns the error of a `Result` into an [`ActionError`], at the place where it is called.
pub trait OrFail<T> {
    /// The error is retried as the action's options say.
    ///
    /// # Errors
    /// The error, if there is one.
    fn or_retry(self) -> Result<T, ActionError>;

    /// The error is fatal: no retry would mend it.
    ///
    /// # Errors
    /// The error, if there is one.
    fn or_fail(self) -> Result<T, ActionError>;
}

impl<T, E: Into<BoxError>> OrFail<T> for Result<T, E> {
    #[track_caller]
    fn or_retry(self) -> Result<T, ActionError> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(ActionError::new(error)),
        }
    }

    #[track_caller]
    fn or_fail(self) -> Result<T, ActionError> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(ActionError::fatal(error)),
        }
    }
}
