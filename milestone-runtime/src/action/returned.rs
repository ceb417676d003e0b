//! What an action returns, made into what is stored.
//!
//! Which conversion fits an error type is found by autoref specialisation on the concrete type (an idea of David Tolnay's), since
//! `impl for E: Error` and one for `anyhow::Error` cannot stand beside each other.

use std::{any::type_name, backtrace::BacktraceStatus, error::Error, time::Duration};

use bson::Bson;
use milestone_core::record::{AttemptError, AttemptKind};
use serde::Serialize;

use super::ActionError;

/// An attempt that failed: the error as it is stored, and what it asks for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Failure {
    /// The error, for people.
    pub error: AttemptError,
    /// What was special about it.
    pub kind: Option<AttemptKind>,
    /// Whether no retry would mend it.
    pub fatal: bool,
    /// The delay it asks for.
    pub retry_after: Option<Duration>,
}

/// What an action may return.
#[diagnostic::on_unimplemented(
    message = "an action returns `Result<T, E>`, not `{Self}`",
    label = "not a `Result`"
)]
pub trait Returned {
    /// What it gives when it succeeds.
    type Output;
}

impl<T, E> Returned for Result<T, E> {
    type Output = T;
}

/// Makes an output into what is stored.
pub(crate) fn encode<T: Serialize>(output: &T) -> Result<Bson, Failure> {
    bson::serialize_to_bson(output).map_err(|error| Failure {
        error: AttemptError {
            kind: "UnstorableOutput".to_owned(),
            message: format!(
                "the action took effect, but BSON cannot hold its output of type `{}`: {error}",
                type_name::<T>()
            ),
            ..AttemptError::default()
        },
        kind: Some(AttemptKind::Refused),
        fatal: true,
        retry_after: None,
    })
}

/// What `__returned!` calls; public for generated code only.
#[doc(hidden)]
pub mod __via {
    use super::{ActionError, Bson, Error, Failure, Serialize, type_name};

    pub struct Slot<E>(Option<E>);

    impl<E> Slot<E> {
        pub fn new(error: E) -> Self {
            Self(Some(error))
        }

        fn take(&mut self) -> E {
            self.0.take().expect("a slot is emptied once")
        }
    }

    pub fn ok<T: Serialize>(output: &T) -> Result<Bson, Failure> {
        super::encode(output)
    }

    /// For `async fn` without a return type: it cannot fail.
    pub fn unit(unit: ()) -> Result<(), std::convert::Infallible> {
        Ok(unit)
    }

    pub trait ViaAction {
        fn failure(&mut self) -> Failure;
    }
    impl ViaAction for &mut &mut &mut Slot<ActionError> {
        fn failure(&mut self) -> Failure {
            super::of_action_error(&self.take())
        }
    }

    pub trait ViaAnyhow {
        fn failure(&mut self) -> Failure;
    }
    impl ViaAnyhow for &mut &mut Slot<anyhow::Error> {
        fn failure(&mut self) -> Failure {
            super::of_anyhow(&self.take())
        }
    }

    pub trait ViaError {
        fn failure(&mut self) -> Failure;
    }
    impl<E: Error + 'static> ViaError for &mut Slot<E> {
        fn failure(&mut self) -> Failure {
            super::of_error(&self.take(), type_name::<E>())
        }
    }

    #[diagnostic::on_unimplemented(
        message = "the error of an action cannot be `{Self}`",
        note = "it may be any `std::error::Error`, `anyhow::Error`, `ActionError`, or what converts into a boxed error, such as `String`"
    )]
    pub trait IntoBoxed {
        fn into_boxed(self) -> Box<dyn Error + Send + Sync>;
    }
    impl<E: Into<Box<dyn Error + Send + Sync>>> IntoBoxed for E {
        fn into_boxed(self) -> Box<dyn Error + Send + Sync> {
            self.into()
        }
    }

    pub trait ViaBoxed {
        fn failure(&mut self) -> Failure;
    }
    impl<E: IntoBoxed> ViaBoxed for Slot<E> {
        fn failure(&mut self) -> Failure {
            let error = self.take().into_boxed();
            super::of_error(&*error, type_name::<E>())
        }
    }
}

/// Makes what an action returned into what is stored.
#[doc(hidden)]
#[macro_export]
macro_rules! __returned {
    ($result:expr) => {
        match $result {
            Ok(output) => $crate::__private::via::ok(&output),
            Err(error) => {
                #[allow(unused_imports)]
                use $crate::__private::via::{Slot, ViaAction as _, ViaAnyhow as _, ViaBoxed as _, ViaError as _};
                Err((&mut &mut &mut &mut Slot::new(error)).failure())
            }
        }
    };
}

fn of_action_error(error: &ActionError) -> Failure {
    let mut failure = of_error(error.get_ref(), error.type_name());
    heed(&mut failure, error);
    failure
}

fn of_anyhow(error: &anyhow::Error) -> Failure {
    let mut failure = of_error(error.as_ref(), "anyhow::Error");
    if failure.error.backtrace.is_none() && error.backtrace().status() == BacktraceStatus::Captured {
        failure.error.backtrace = Some(error.backtrace().to_string());
    }
    failure
}

fn of_error(error: &(dyn Error + 'static), kind: &str) -> Failure {
    let mut failure = Failure {
        error: AttemptError { kind: kind.to_owned(), message: error.to_string(), ..AttemptError::default() },
        ..Failure::default()
    };
    let mut next = Some(error);
    let mut first = true;
    while let Some(error) = next {
        if let Some(action_error) = error.downcast_ref::<ActionError>() {
            heed(&mut failure, action_error);
            next = Some(action_error.get_ref());
            continue;
        }
        if !first {
            failure.error.chain.push(error.to_string());
        }
        first = false;
        next = error.source();
    }
    failure
}

/// The outermost `ActionError` decides.
fn heed(failure: &mut Failure, error: &ActionError) {
    failure.fatal |= error.is_fatal();
    failure.retry_after = failure.retry_after.or(error.delay());
    if failure.error.location.is_none() {
        failure.error.location = Some(error.location().to_string());
        failure.error.backtrace = Some(error.backtrace().to_string());
    }
}
