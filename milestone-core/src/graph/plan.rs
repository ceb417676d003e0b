//! A graph made at run time: owned, validated, in an order in which every action comes after those it waits for.

use std::collections::{BTreeSet, HashMap};

use super::Graph;
use crate::options::Mode;

/// The most actions that one milestone may have.
pub const MAX_ACTIONS: usize = 4096;

/// The longest name of an action, a method, a queue or a milestone type, in bytes.
pub const MAX_NAME: usize = 256;

/// One action of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedAction {
    /// The name in this milestone.
    pub name: String,
    /// The durable name of the function that runs; `None` is a fork, complete as soon as its turn comes.
    pub method: Option<String>,
    /// The indices of the actions it waits for.
    pub after: Vec<usize>,
    /// How often it may run. What a worker without the method must know is stored too.
    pub mode: Mode,
    /// The durable name of the action that undoes it.
    pub undo: Option<String>,
    /// The durable name of the action that tells whether an attempt in doubt took effect.
    pub verify: Option<String>,
    /// The queue in which it waits; `None` is the default queue.
    pub queue: Option<String>,
}

impl PlannedAction {
    /// An action named like its method, that waits for nothing.
    #[must_use]
    pub fn new(name: impl Into<String>, mode: Mode) -> Self {
        let name = name.into();
        Self {
            method: Some(name.clone()),
            name,
            after: Vec::new(),
            mode,
            undo: None,
            verify: None,
            queue: None,
        }
    }

    /// Sets what it waits for, as indices into the plan.
    #[must_use]
    pub fn after(mut self, after: impl IntoIterator<Item = usize>) -> Self {
        self.after = after.into_iter().collect();
        self
    }
}

/// What is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// There is no action in it.
    #[error("the graph has no action: give it at least one")]
    Empty,
    /// There are too many actions in it.
    #[error(
        "the graph has {count} actions, the limit is {MAX_ACTIONS}: split it into several milestones"
    )]
    TooMany {
        /// How many there are; at least this many if it was cut short.
        count: usize,
    },
    /// A name that cannot be used.
    #[error("{what} cannot be named `{name}`: {reason}")]
    Name {
        /// What has the name.
        what: &'static str,
        /// The name.
        name: String,
        /// Why it is refused.
        reason: &'static str,
    },
    /// Two actions of one name.
    #[error(
        "two actions are named `{name}`: give one of them a name of its own (in `milestone!`, an alias: `other: {name}`)"
    )]
    Twice {
        /// The name.
        name: String,
    },
    /// A fork with nothing behind it.
    #[error("the action `{name}` has no method and nothing next: give it one of them")]
    EmptyFork {
        /// The name of the fork.
        name: String,
    },
    /// A fork with an undo.
    #[error("the fork `{name}` has an undo, but does nothing: leave it out")]
    ForkUndo {
        /// The name of the fork.
        name: String,
    },
    /// An action that is simply run again has a verify.
    #[error(
        "`{name}` has a verify, but may run again: a verify is for plain actions, leave it out"
    )]
    NeedlessVerify {
        /// The name of the action.
        name: String,
    },
    /// An action waits for one that does not exist.
    #[error("`{name}` is bound to action number {index}, which does not exist")]
    Missing {
        /// The action that waits.
        name: String,
        /// The index that does not exist.
        index: usize,
    },
    /// An action waits for itself, directly or through others.
    #[error("the action `{name}` waits for itself")]
    Cycle {
        /// An action on the cycle.
        name: String,
    },
}

impl GraphError {
    /// A stable code, for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty => "graph_empty",
            Self::TooMany { .. } => "graph_too_many",
            Self::Name { .. } => "graph_name",
            Self::Twice { .. } => "graph_twice",
            Self::EmptyFork { .. } => "graph_empty_fork",
            Self::ForkUndo { .. } => "graph_fork_undo",
            Self::NeedlessVerify { .. } => "graph_needless_verify",
            Self::Missing { .. } => "graph_missing",
            Self::Cycle { .. } => "graph_cycle",
        }
    }
}

/// A valid graph: names are good and single, nothing waits for itself, every action comes after those it waits for.
///
/// ```
/// use milestone_core::{graph::{GraphError, Plan, PlannedAction}, options::Mode};
///
/// let action = |name| PlannedAction::new(name, Mode::Idempotent);
/// let plan = Plan::new(vec![action("credit").after([1]), action("debit")])?;
/// let names: Vec<_> = plan.actions().iter().map(|action| action.name.as_str()).collect();
/// assert_eq!(names, ["debit", "credit"]);
///
/// let circle = Plan::new(vec![action("a").after([1]), action("b").after([0])]);
/// assert_eq!(circle, Err(GraphError::Cycle { name: "a".into() }));
/// # Ok::<(), GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    actions: Vec<PlannedAction>,
}

impl Plan {
    /// Validates the actions and puts them in order: as given, but each behind those it waits for.
    ///
    /// # Errors
    /// [`GraphError`], naming the action.
    pub fn new(actions: Vec<PlannedAction>) -> Result<Self, GraphError> {
        if actions.is_empty() {
            return Err(GraphError::Empty);
        }
        if actions.len() > MAX_ACTIONS {
            return Err(GraphError::TooMany {
                count: actions.len(),
            });
        }
        let mut names = BTreeSet::new();
        for action in &actions {
            check_name("an action", &action.name)?;
            if let Some(method) = &action.method {
                check_name("a method", method)?;
            } else if action.undo.is_some() {
                return Err(GraphError::ForkUndo {
                    name: action.name.clone(),
                });
            }
            if let Some(undo) = &action.undo {
                check_name("an undo", undo)?;
            }
            if let Some(verify) = &action.verify {
                check_name("a verify", verify)?;
                if action.method.is_none() || action.mode.repeatable() {
                    return Err(GraphError::NeedlessVerify {
                        name: action.name.clone(),
                    });
                }
            }
            if let Some(queue) = &action.queue {
                check_name("a queue", queue)?;
            }
            if !names.insert(action.name.as_str()) {
                return Err(GraphError::Twice {
                    name: action.name.clone(),
                });
            }
            if let Some(index) = action.after.iter().find(|index| **index >= actions.len()) {
                return Err(GraphError::Missing {
                    name: action.name.clone(),
                    index: *index,
                });
            }
        }
        let actions = in_order(actions)?;
        let followed: BTreeSet<usize> = actions
            .iter()
            .flat_map(|action| action.after.iter().copied())
            .collect();
        for (index, action) in actions.iter().enumerate() {
            if action.method.is_none() && !followed.contains(&index) {
                return Err(GraphError::EmptyFork {
                    name: action.name.clone(),
                });
            }
        }
        Ok(Self { actions })
    }

    /// The actions, each behind those it waits for.
    #[must_use]
    pub fn actions(&self) -> &[PlannedAction] {
        &self.actions
    }

    /// Takes the actions out.
    #[must_use]
    pub fn into_actions(self) -> Vec<PlannedAction> {
        self.actions
    }

    /// The indices of the last actions, those that nothing waits for.
    #[must_use]
    pub fn ends(&self) -> Vec<usize> {
        let followed: BTreeSet<usize> = self
            .actions
            .iter()
            .flat_map(|action| action.after.iter().copied())
            .collect();
        (0..self.actions.len())
            .filter(|index| !followed.contains(index))
            .collect()
    }
}

impl<T> TryFrom<&Graph<T>> for Plan {
    type Error = GraphError;

    fn try_from(graph: &Graph<T>) -> Result<Self, GraphError> {
        let mut actions: Vec<PlannedAction> = graph
            .nodes
            .iter()
            .map(|node| PlannedAction {
                name: node.name.to_owned(),
                method: Some(node.method.to_owned()),
                after: Vec::new(),
                mode: node.options.mode,
                undo: node.options.undo.map(str::to_owned),
                verify: node.options.verify.map(str::to_owned),
                queue: node.options.queue.map(str::to_owned),
            })
            .collect();
        let count = actions.len();
        for &(from, to) in graph.edges {
            if to >= count {
                return Err(GraphError::Missing {
                    name: graph
                        .nodes
                        .get(from)
                        .map_or("", |node| node.name)
                        .to_owned(),
                    index: to,
                });
            }
            actions[to].after.push(from);
        }
        Self::new(actions)
    }
}

/// Checks a name of an action, a method, a queue or a milestone type; `what` says which, for the error.
///
/// # Errors
/// [`GraphError::Name`] with the reason.
pub fn check_name(what: &'static str, name: &str) -> Result<(), GraphError> {
    let reason = if name.is_empty() {
        "a name needs at least one character"
    } else if name == "milestone" && !matches!(what, "a queue" | "a label" | "an undo" | "a verify")
    {
        "the parameters go by that name in an attempt's input"
    } else if name.starts_with('$') {
        "names that start with `$` are the database's"
    } else if name.contains('\0') {
        "a name cannot hold a NUL character"
    } else if name.len() > MAX_NAME {
        "a name may have 256 bytes"
    } else {
        return Ok(());
    };
    let name = name.chars().take(64).collect();
    Err(GraphError::Name { what, name, reason })
}

/// Sorts topologically; among actions that could come next, the one given first does.
fn in_order(actions: Vec<PlannedAction>) -> Result<Vec<PlannedAction>, GraphError> {
    let count = actions.len();
    let mut waits: Vec<usize> = Vec::with_capacity(count);
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (index, action) in actions.iter().enumerate() {
        let after: BTreeSet<usize> = action.after.iter().copied().collect();
        waits.push(after.len());
        for before in after {
            followers[before].push(index);
        }
    }
    let mut free: BTreeSet<usize> = (0..count).filter(|index| waits[*index] == 0).collect();
    let mut place = HashMap::with_capacity(count);
    let mut order = Vec::with_capacity(count);
    while let Some(index) = free.pop_first() {
        place.insert(index, order.len());
        order.push(index);
        for &follower in &followers[index] {
            waits[follower] -= 1;
            if waits[follower] == 0 {
                free.insert(follower);
            }
        }
    }
    if order.len() < count {
        let stuck = (0..count)
            .find(|index| waits[*index] > 0)
            .unwrap_or_default();
        return Err(GraphError::Cycle {
            name: actions[stuck].name.clone(),
        });
    }
    let mut slots: Vec<Option<PlannedAction>> = actions.into_iter().map(Some).collect();
    Ok(order
        .into_iter()
        .filter_map(|index| slots[index].take())
        .map(|mut action| {
            let after: BTreeSet<usize> = action.after.iter().map(|before| place[before]).collect();
            action.after = after.into_iter().collect();
            action
        })
        .collect())
}
