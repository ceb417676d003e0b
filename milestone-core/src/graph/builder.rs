//! Graphs that are known only at run time, built as trees.

use super::{GraphError, MAX_ACTIONS, Plan, PlannedAction};
use crate::options::{Mode, Options};

/// An action of a graph that is built at run time, with all that comes after it: `next` runs once the action is complete, each for
/// itself, and `done` once all of `next` and what comes after it is. The tree is MongoMilestone's `Action(type, next, done)`.
///
/// Wherever an action is expected, a string stands for one of that name.
///
/// ```
/// use milestone_core::graph::{Action, Resolved};
///
/// let plan = Action::new("op-1")
///     .next(["op-2.1", "op-2.2"])
///     .done("op-3")
///     .into_plan(|_method| Some(Resolved::idempotent()))?;
///
/// let waits: Vec<_> = plan.actions().iter().map(|action| (action.name.as_str(), &action.after[..])).collect();
/// assert_eq!(waits, [("op-1", &[][..]), ("op-2.1", &[0]), ("op-2.2", &[0]), ("op-3", &[1, 2])]);
/// # Ok::<(), milestone_core::graph::GraphError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "an action does nothing until its milestone is started"]
pub struct Action {
    /// The tree, flat: neither building nor dropping a deep one recurses. Empty once there are too many.
    nodes: Vec<Node>,
    /// The index of the action itself.
    root: usize,
    /// How many actions there are, also those that are no longer kept.
    count: usize,
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    method: Option<String>,
    mode: Option<Mode>,
    undo: Option<String>,
    verify: Option<String>,
    queue: Option<String>,
    next: Vec<usize>,
    /// One behind the other.
    done: Vec<usize>,
}

/// What is known of a registered method, for the actions that leave it open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Resolved {
    /// How often it may run.
    pub mode: Mode,
    /// The durable name of the action that undoes it.
    pub undo: Option<String>,
    /// The durable name of the action that tells whether an attempt in doubt took effect.
    pub verify: Option<String>,
    /// The queue in which it waits; `None` is the default queue.
    pub queue: Option<String>,
}

impl Resolved {
    /// A plain method, at most once, without an undo, in the default queue.
    pub const fn plain() -> Self {
        Self {
            mode: Mode::Plain,
            undo: None,
            verify: None,
            queue: None,
        }
    }

    /// An idempotent method, at least once, without an undo, in the default queue.
    pub const fn idempotent() -> Self {
        Self {
            mode: Mode::Idempotent,
            undo: None,
            verify: None,
            queue: None,
        }
    }
}

impl From<&Options> for Resolved {
    fn from(options: &Options) -> Self {
        Self {
            mode: options.mode,
            undo: options.undo.map(str::to_owned),
            verify: options.verify.map(str::to_owned),
            queue: options.queue.map(str::to_owned),
        }
    }
}

impl Action {
    /// An action of that name, which runs the method of the same name. Names may hold dots and dashes.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::of(Some(name.clone()), name)
    }

    /// An action without a method: complete as soon as its turn comes, it only opens the way for its `next`, which it must have.
    pub fn fork(name: impl Into<String>) -> Self {
        Self::of(None, name.into())
    }

    fn of(method: Option<String>, name: String) -> Self {
        let node = Node {
            name,
            method,
            mode: None,
            undo: None,
            verify: None,
            queue: None,
            next: Vec::new(),
            done: Vec::new(),
        };
        Self {
            nodes: vec![node],
            root: 0,
            count: 1,
        }
    }

    /// Sets the durable name of the function that runs, where it is not the action's own name.
    pub fn method(self, method: impl Into<String>) -> Self {
        self.with(|node| node.method = Some(method.into()))
    }

    /// Adds actions that run once this one is complete, each for itself.
    pub fn next<A: Into<Self>>(mut self, actions: impl IntoIterator<Item = A>) -> Self {
        for action in actions {
            self.attach(action.into(), |node| &mut node.next);
        }
        self
    }

    /// Adds an action that runs once all of `next` and all that comes after it is complete; without a `next`, once this action is. A
    /// second one runs after all of the first.
    pub fn done(mut self, action: impl Into<Self>) -> Self {
        self.attach(action.into(), |node| &mut node.done);
        self
    }

    /// Says how often the action may run. Without that, the registered method says it.
    pub fn mode(self, mode: Mode) -> Self {
        self.with(|node| node.mode = Some(mode))
    }

    /// Says that the action may run again: at least once.
    pub fn idempotent(self) -> Self {
        self.mode(Mode::Idempotent)
    }

    /// Says that the action runs in a transaction: exactly once for what it writes there. Its method must be a transactional one.
    pub fn transactional(self) -> Self {
        self.mode(Mode::Transactional)
    }

    /// Names the method that undoes the action; it must be idempotent or transactional. Without that, the registered method says it.
    pub fn undo(self, method: impl Into<String>) -> Self {
        self.with(|node| node.undo = Some(method.into()))
    }

    /// Names the method that tells whether an attempt in doubt took effect; only a plain action has one. Without that, the registered method
    /// says it.
    pub fn verify(self, method: impl Into<String>) -> Self {
        self.with(|node| node.verify = Some(method.into()))
    }

    /// Names the queue in which the action waits. Without that, the registered method says it.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|node| node.queue = Some(queue.into()))
    }

    /// How many actions there are, with all that comes after this one.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Makes the plan of a milestone that begins with this action. `resolve` tells what is known of a method; of one that it does not
    /// know, an action that leaves its mode open is plain, as that does no harm.
    ///
    /// # Errors
    /// [`GraphError`], naming the action, if a name cannot be used or is there twice, if a fork has no next, or if there are more than
    /// [`MAX_ACTIONS`] actions.
    pub fn into_plan(
        self,
        mut resolve: impl FnMut(&str) -> Option<Resolved>,
    ) -> Result<Plan, GraphError> {
        if self.count > MAX_ACTIONS {
            return Err(GraphError::TooMany { count: self.count });
        }
        let order = self.order();
        let after = self.after(&order);
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        let mut place = vec![0; nodes.len()];
        for (at, index) in order.iter().enumerate() {
            place[*index] = at;
        }
        let actions = order.iter().filter_map(|index| {
            let node = nodes[*index].take()?;
            if node.method.is_none() && node.next.is_empty() {
                return Some(Err(GraphError::EmptyFork { name: node.name }));
            }
            let known = node.method.as_deref().and_then(&mut resolve);
            let known = known.unwrap_or(Resolved::plain());
            let mode = node.mode.unwrap_or(known.mode);
            // An action that is made repeatable here needs no verify that its method has.
            let verify = known.verify.filter(|_| !mode.repeatable());
            Some(Ok(PlannedAction {
                name: node.name,
                method: node.method,
                after: after[*index].iter().map(|before| place[*before]).collect(),
                mode,
                undo: node.undo.or(known.undo),
                verify: node.verify.or(verify),
                queue: node.queue.or(known.queue),
            }))
        });
        Plan::new(actions.collect::<Result<_, _>>()?)
    }

    fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        if let Some(node) = self.nodes.get_mut(self.root) {
            change(node);
        }
        self
    }

    /// Moves another tree in here, below the root. The smaller one is moved to the larger one, so that a deep tree that is built from
    /// its end costs no more than one that is built from its beginning.
    fn attach(&mut self, mut other: Self, place: impl FnOnce(&mut Node) -> &mut Vec<usize>) {
        self.count = self.count.saturating_add(other.count);
        if self.count > MAX_ACTIONS {
            self.nodes = Vec::new();
            return;
        }
        if other.nodes.len() > self.nodes.len() {
            std::mem::swap(&mut self.nodes, &mut other.nodes);
            self.root += self.nodes.len();
        } else {
            other.root += self.nodes.len();
        }
        let offset = self.nodes.len();
        self.nodes.extend(other.nodes.into_iter().map(|mut node| {
            for index in node.next.iter_mut().chain(&mut node.done) {
                *index += offset;
            }
            node
        }));
        place(&mut self.nodes[self.root]).push(other.root);
    }

    /// The nodes as they were written down: each before all that is below it, `next` before `done`.
    fn order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut rest = vec![self.root];
        while let Some(index) = rest.pop() {
            order.push(index);
            let node = &self.nodes[index];
            rest.extend(node.next.iter().chain(&node.done).rev());
        }
        order
    }

    /// What each node waits for. A tree ends with its last `done`, or else where its `next` trees end, or else with itself.
    fn after(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for &index in order.iter().rev() {
            let node = &self.nodes[index];
            let mut last = Vec::new();
            for &next in &node.next {
                after[next].push(index);
                last.append(&mut ends[next]);
            }
            if last.is_empty() {
                last.push(index);
            }
            for &done in &node.done {
                after[done].append(&mut last);
                last = std::mem::take(&mut ends[done]);
            }
            ends[index] = last;
        }
        after
    }
}

impl From<&str> for Action {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for Action {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl From<&String> for Action {
    fn from(name: &String) -> Self {
        Self::new(name.as_str())
    }
}

#[cfg(test)]
mod tests;
