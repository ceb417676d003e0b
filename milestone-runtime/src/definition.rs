//! What is started: a type with a graph, or a graph in place.

use std::{any::type_name, marker::PhantomData, panic::Location, time::Duration};

use milestone_core::{graph, record::MilestoneId, verdict::Verdict};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    action::{Accepts, Action, Registration},
    handle::Handle,
    runtime::Runtime,
    start::Start,
};

/// A graph of actions, as const data. `milestone!` and the derive write it.
pub type Graph = graph::Graph<Registration>;

/// One action of a [`Graph`].
pub type Node = graph::Node<Registration>;

/// The node of an action, under a name of its own.
#[track_caller]
pub const fn node<A: Action>(name: &'static str) -> Node {
    Node {
        name,
        method: A::NAME,
        options: A::OPTIONS,
        inputs: A::INPUTS,
        payload: Registration::of::<A>(),
    }
}

/// The parameters of a milestone, with the graph of actions that they are for. `#[derive(Milestone)]` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a milestone",
    note = "derive it: `#[derive(Serialize, Deserialize, Milestone)] #[milestone(first -> second)]`"
)]
pub trait Milestone: Serialize + DeserializeOwned + Send + 'static {
    /// The durable name of the type, which stored milestones carry.
    const TYPE: &'static str;
    /// The graph.
    const GRAPH: &'static Graph;
    /// How long it may take, see [`Start::deadline`]. Default: without end.
    const DEADLINE: Option<Duration> = None;

    /// Starts a milestone: awaited, it is stored, and will run whatever happens then. [`Start::id`] makes the start idempotent.
    fn start<O>(self, runtime: &Runtime) -> Start<O>
    where
        Self: Yields<O>,
        O: DeserializeOwned,
    {
        let start = runtime.start_graph(Self::TYPE, Self::GRAPH, &self);
        match Self::DEADLINE {
            Some(deadline) => start.deadline(deadline),
            None => start,
        }
    }

    /// Starts a milestone with an id of the caller's, which is its idempotency key, see [`Start::id`].
    fn start_with_id<O>(self, runtime: &Runtime, id: impl Into<String>) -> Start<O>
    where
        Self: Yields<O>,
        O: DeserializeOwned,
    {
        self.start(runtime).id(id)
    }

    /// The handle of a milestone of this type that was started before, here or elsewhere. Whether it exists is seen when it is asked
    /// something.
    fn handle<O>(runtime: &Runtime, id: impl Into<MilestoneId>) -> Handle<O>
    where
        Self: Yields<O>,
        O: DeserializeOwned,
    {
        runtime.handle_of(id.into())
    }
}

/// Says what the outcome of a milestone type is: what its last action gives; of several last ones a tuple, in their order in the graph.
/// `#[derive(Milestone)]` implements it, once for each type.
///
/// It stands beside [`Milestone`], not in it, so that a public type may have actions that are not.
pub trait Yields<O> {}

/// The outcome of a graph, for generated code.
pub trait Outcome {
    /// What the last action gives; of several last ones a tuple.
    type Output: DeserializeOwned;
}

/// Short for the output of an [`Outcome`].
pub type OutcomeOf<T> = <T as Outcome>::Output;

/// A milestone type as a runtime knows it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TypeRegistration {
    /// The durable name.
    pub name: &'static str,
    /// The graph.
    pub graph: &'static Graph,
    /// Where it is registered.
    pub location: &'static Location<'static>,
}

impl TypeRegistration {
    /// The registration of a milestone type.
    #[track_caller]
    pub const fn of<M: Milestone>() -> Self {
        Self {
            name: M::TYPE,
            graph: M::GRAPH,
            location: Location::caller(),
        }
    }
}

inventory::collect!(TypeRegistration);

/// A graph in place, as `milestone!` gives it: for parameters of the type `P`, with the outcome `O`.
#[must_use = "a graph does nothing until it is started"]
pub struct Definition<P, O> {
    pub(crate) graph: &'static Graph,
    pub(crate) name: Option<&'static str>,
    types: PhantomData<fn(P) -> O>,
}

impl<P, O> Definition<P, O> {
    /// A definition of that graph.
    pub const fn new(graph: &'static Graph) -> Self {
        Self {
            graph,
            name: None,
            types: PhantomData,
        }
    }

    /// Checks, and tells the compiler, what parameters an action of the graph takes.
    pub const fn takes<A: Accepts<P>>(self) -> Self {
        self
    }

    /// Names the type of its milestones; without it, they are named after the type of their parameters.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// The graph.
    pub const fn graph(&self) -> &'static Graph {
        self.graph
    }

    /// The name of the type of its milestones: the one given, or the last part of the path of the parameters' type.
    pub fn type_name(&self) -> &'static str {
        self.name.unwrap_or_else(|| {
            let path = type_name::<P>();
            let path = path.split('<').next().unwrap_or(path);
            path.rsplit("::").next().unwrap_or(path)
        })
    }
}

/// Fails to compile where an action does not take the parameters of a milestone.
pub const fn takes<A: Accepts<P>, P>() {}

/// Fails to compile where an action of a milestone takes other parameters, or an output that is not there.
///
/// # Panics
/// With the message that the compiler shows.
#[track_caller]
pub const fn check<A: Accepts<M>, M: Milestone>(index: usize) {
    M::GRAPH.check_inputs(index);
}

/// The durable name of an action.
pub const fn name_of<A: Action>() -> &'static str {
    A::NAME
}

/// What an action gives when it succeeds.
pub type OutputOf<A> = <A as Action>::Output;

/// Fails to compile where `U` cannot undo `A`.
///
/// # Panics
/// In the compiler, if it is neither idempotent nor transactional, since an undo is tried until it succeeds; or if it takes the output of `A` as one that is
/// always there.
#[track_caller]
pub const fn check_undo<U: Action, A: Action>() {
    assert!(
        U::OPTIONS.mode.repeatable(),
        "an undo must be idempotent, since it is tried until it succeeds: mark it `#[action(idempotent)]`, or `#[action(transactional)]`"
    );
    assert!(
        !graph::takes_output(U::INPUTS, A::NAME),
        "an undo must bear that its action never happened: take its output as `Option<Output<..>>`"
    );
}

/// Fails to compile where `V` cannot verify `A`: where it does not give a `Verdict` with the output of `A`.
///
/// # Panics
/// In the compiler, if it is not idempotent, since it is asked until it answers; or if it takes an output that `A` does not take.
#[track_caller]
pub const fn check_verify<V: Action<Output = Verdict<A::Output>>, A: Action>() {
    assert!(
        matches!(V::OPTIONS.mode, milestone_core::options::Mode::Idempotent),
        "a verify must be idempotent, since it is asked until it answers: mark it `#[action(idempotent)]`"
    );
    assert!(
        graph::takes_no_more(V::INPUTS, A::INPUTS),
        "a verify may take the outputs that its action takes, and no others"
    );
}

/// A graph in place: `milestone!(debit -> credit)`, or `milestone!(<debit -> credit>)`.
///
/// It gives a [`Definition`](crate::Definition), which is started with the parameters. The graph is written as in `#[milestone(..)]` of
/// the derive macro [`Milestone`](derive@crate::Milestone):
///
/// ```text
/// graph := chain (";" chain)* ";"?
/// chain := step ("->" step)*
/// step  := [alias ":"] path | "(" chain ("," chain)* ")"
/// ```
///
/// What follows a group waits for all last actions of it. Several chains share actions by name, so any graph without a cycle can be
/// written. An action that runs twice needs an alias: `warn: notify -> close -> thank: notify`.
///
/// ```standalone_crate
/// use milestone_runtime::prelude::*;
///
/// #[action]
/// async fn weigh(Params(parcel): Params<String>) -> Result<usize, ActionError> {
///     Ok(parcel.len())
/// }
///
/// #[action]
/// async fn stamp(Output(grams): Output<weigh>) -> Result<bool, ActionError> {
///     Ok(grams > 0)
/// }
///
/// let post = milestone!(weigh -> stamp);
/// assert_eq!(post.graph().edges, [(0, 1)]);
/// # let _ = post.takes::<weigh>();
/// ```
#[macro_export]
macro_rules! milestone {
    ($($graph:tt)*) => { $crate::__private::definition!($crate $($graph)*) };
}
