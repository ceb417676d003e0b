//! Extractors: what an action can take as arguments. The idea is axum's.

use std::{any::TypeId, any::type_name, ops::Deref, sync::Arc};

use bson::{Bson, doc};
use milestone_core::graph::Input;
use serde::{Deserialize, de::DeserializeOwned};

use super::{Action, ActionError, Call, Context};

/// A type that an action can take as an argument.
#[diagnostic::on_unimplemented(
    message = "an action cannot take a `{Self}`",
    label = "not an extractor",
    note = "an action takes `Params<T>`, `Output<action>`, `Option<Output<action>>`, `State<T>` and `Context`"
)]
pub trait Extract: Sized {
    /// What it is, so that graphs and runtimes are checked before anything runs.
    const INPUT: Input;

    /// Takes it out of the call.
    ///
    /// # Errors
    /// If the stored value does not fit the type.
    fn extract(call: &Call) -> Result<Self, ActionError>;
}

/// The parameters of the milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> Extract for Params<T> {
    const INPUT: Input = Input::Params;

    fn extract(call: &Call) -> Result<Self, ActionError> {
        fitting(
            call.inner().parameters.read(),
            "parameters of the milestone",
        )
        .map(Self)
    }
}

/// The output of an action that runs before this one. The compiler refuses a graph in which it does not.
pub struct Output<A: Action>(pub A::Output);

impl<A: Action> Extract for Output<A>
where
    A::Output: DeserializeOwned,
{
    const INPUT: Input = Input::Output { method: A::NAME };

    fn extract(call: &Call) -> Result<Self, ActionError> {
        let output = call.output(A::NAME).ok_or_else(|| {
            ActionError::fatal(format!(
                "the output of `{}` is not there: in this milestone it does not run before this action, or more than one of it does",
                A::NAME
            ))
        })?;
        decode(output, &format!("output of `{}`", A::NAME)).map(Self)
    }
}

/// The output of an action, if it is there: for an undo, which must bear that its action never happened.
impl<A: Action> Extract for Option<Output<A>>
where
    A::Output: DeserializeOwned,
{
    const INPUT: Input = Input::MaybeOutput { method: A::NAME };

    fn extract(call: &Call) -> Result<Self, ActionError> {
        call.output(A::NAME)
            .map(|output| decode(output, &format!("output of `{}`", A::NAME)).map(Output))
            .transpose()
    }
}

/// A value that the runtime's builder was given with `.state(..)`, such as a database handle or a client.
#[derive(Debug)]
pub struct State<T>(pub Arc<T>);

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> Extract for State<T> {
    const INPUT: Input = Input::State {
        id: TypeId::of::<T>(),
        name: type_name::<T>,
    };

    fn extract(call: &Call) -> Result<Self, ActionError> {
        call.state(TypeId::of::<T>())
            .and_then(|state| Arc::clone(state).downcast::<T>().ok())
            .map(Self)
            .ok_or_else(|| {
                ActionError::fatal(format!(
                    "the runtime has no state of type `{}`",
                    type_name::<T>()
                ))
            })
    }
}

impl Extract for Context {
    const INPUT: Input = Input::Context;

    fn extract(call: &Call) -> Result<Self, ActionError> {
        Ok(call.context().clone())
    }
}

/// A stored value as a type. It goes by its bytes, as [`super::to_value`] does: bson's other way takes maps for extended JSON, and asks types
/// such as an address for their form for people, which is not the one that is stored.
pub(crate) fn from_value<T: DeserializeOwned>(value: &Bson) -> Result<T, bson::error::Error> {
    from_bytes(&doc! { "value": value.clone() }.to_vec()?)
}

/// The same of the bytes of a document in which the value stands as `value`.
pub(super) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, bson::error::Error> {
    #[derive(Deserialize)]
    struct Wrapped<V> {
        value: V,
    }
    let wrapped: Wrapped<T> = bson::deserialize_from_slice(bytes)?;
    Ok(wrapped.value)
}

#[track_caller]
pub(super) fn decode<T: DeserializeOwned>(value: &Bson, what: &str) -> Result<T, ActionError> {
    fitting(from_value(value), what)
}

#[track_caller]
fn fitting<T>(read: Result<T, bson::error::Error>, what: &str) -> Result<T, ActionError> {
    read.map_err(|error| {
        ActionError::fatal(format!(
            "the stored {what} does not fit `{}`: {error}",
            type_name::<T>()
        ))
    })
}
