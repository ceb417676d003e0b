//! What is started: a type with a graph, or a graph in place.

use std::{any::type_name, marker::PhantomData, panic::Location};

use milestone_core::graph;
use serde::{Serialize, de::DeserializeOwned};

use crate::action::{Accepts, Action, Registration};

/// A graph of actions, as const data. `milestone!` and the derive write it.
pub type Graph = graph::Graph<Registration>;

/// One action of a [`Graph`].
pub type Node = graph::Node<Registration>;

/// The node of an action, under a name of its own.
#[track_caller]
pub const fn node<A: Action>(name: &'static str) -> Node {
    Node { name, method: A::NAME, options: A::OPTIONS, inputs: A::INPUTS, payload: Registration::of::<A>() }
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
    /// What the last action gives; of several last ones a tuple, in their order in the graph.
    type Output: DeserializeOwned;
}

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
        Self { name: M::TYPE, graph: M::GRAPH, location: Location::caller() }
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
        Self { graph, name: None, types: PhantomData }
    }

    /// Checks, and tells the compiler, what parameters an action of the graph takes.
    pub const fn takes<A: Action + Accepts<P>>(self) -> Self {
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
pub const fn takes<A: Action + Accepts<P>, P>() {}

/// The durable name of an action that undoes another.
///
/// # Panics
/// In the compiler, if the action is not idempotent: an undo is tried until it succeeds.
pub const fn undo_name<A: Action>() -> &'static str {
    assert!(
        matches!(A::OPTIONS.mode, milestone_core::options::Mode::Idempotent),
        "an undo must be idempotent, since it is tried until it succeeds: mark it `#[action(idempotent)]`"
    );
    A::NAME
}
