//! Actions: the trait that `#[action]` implements, and what its functions take and return.

mod call;
mod context;
mod error;
mod extract;
mod returned;
mod stack;
mod stored;
mod strict;

use std::panic::Location;

pub use call::{ActionFuture, Call};
pub(crate) use call::{CallInner, Seen, States};
pub use context::Context;
pub(crate) use context::{ContextInner, Ending};
pub use error::{ActionError, OrFail};
pub(crate) use extract::from_value;
pub use extract::{Extract, Output, Params, State};
pub use milestone_core::{
    graph::Input,
    options::{Mode, Options},
    retry::RetryPolicy,
};
pub use returned::{Failure, IntoFailure, Retry, Returned, classified};
pub(crate) use returned::{boxed_failure, encode, to_value};
pub(crate) use stack::readable;
pub(crate) use stored::StoredValue;

/// An async function that milestones run. `#[action]` implements it for an empty enum of the function's name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an action",
    label = "not an action",
    note = "mark an async function of this name with `#[action]`, and bring it in with `use`"
)]
pub trait Action: 'static {
    /// The durable name, which stored milestones refer to: renaming it breaks those that run.
    const NAME: &'static str;
    /// How often it may run, and how it is retried.
    const OPTIONS: Options = Options::plain();
    /// What it takes.
    const INPUTS: &'static [Input];
    /// What it gives when it succeeds.
    type Output;

    /// Runs it once.
    fn call(call: Call) -> ActionFuture;
}

/// Says that an action can run in milestones with the parameters `P`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take `{P}`",
    label = "takes other parameters than `{P}`",
    note = "all actions of a milestone that have a `Params<T>` must have the same `T`"
)]
pub trait Accepts<P> {}

/// An action as a runtime knows it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Registration {
    /// The durable name.
    pub name: &'static str,
    /// How often it may run, and how it is retried.
    pub options: Options,
    /// What it takes.
    pub inputs: &'static [Input],
    /// Runs it once.
    pub call: fn(Call) -> ActionFuture,
    /// Where it is registered.
    pub location: &'static Location<'static>,
}

impl Registration {
    /// The registration of an action.
    #[track_caller]
    pub const fn of<A: Action>() -> Self {
        Self {
            name: A::NAME,
            options: A::OPTIONS,
            inputs: A::INPUTS,
            call: A::call,
            location: Location::caller(),
        }
    }
}

inventory::collect!(Registration);
