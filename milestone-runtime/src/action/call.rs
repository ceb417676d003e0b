//! One call of an action: what the extractors read.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use bson::{Bson, Document};
use serde::de::DeserializeOwned;

use super::{ActionError, Context, Extract, Failure, StoredValue, extract::decode};

/// What an action's body is to the runtime.
pub type ActionFuture = Pin<Box<dyn Future<Output = Result<Bson, Failure>> + Send>>;

/// The values that a runtime was given, by type.
pub(crate) type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// One call of an action: what its arguments are taken from.
#[derive(Clone, Debug)]
pub struct Call {
    inner: Arc<CallInner>,
}

#[derive(Debug)]
pub(crate) struct CallInner {
    /// The parameters of the milestone.
    pub(crate) parameters: Arc<StoredValue>,
    /// The outputs that it can see.
    pub(crate) outputs: Vec<Seen>,
    /// Of the undo of a transactional action whose output is not in the milestone: its method. Whether its transaction was committed is
    /// settled before the undo runs.
    pub(crate) unsettled: Option<String>,
    /// What that action gave, if it was.
    pub(crate) settled: OnceLock<Seen>,
    /// How many bytes the milestone's document may still grow, as far as is known.
    pub(crate) room: usize,
    pub(crate) states: Arc<States>,
    pub(crate) context: Context,
}

/// The output of an action that has run before.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The name of the action in its graph.
    pub(crate) action: String,
    pub(crate) method: String,
    pub(crate) output: Bson,
}

impl Call {
    pub(crate) fn new(inner: CallInner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Takes an argument out.
    ///
    /// # Errors
    /// What the extractor says: a fatal error if the stored value does not fit the type.
    pub fn extract<T: Extract>(&self) -> Result<T, ActionError> {
        T::extract(self)
    }

    /// What the runtime knows of this attempt.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The parameters of the milestone, as they are stored.
    pub fn parameters(&self) -> &Bson {
        self.inner.parameters.tree()
    }

    /// The output of an action that has run before, by the durable name of its method; `None` if there is not exactly one.
    pub fn output(&self, method: &str) -> Option<&Bson> {
        let mut found = self.seen().filter(|seen| seen.method == method);
        match (found.next(), found.next()) {
            (Some(seen), None) => Some(&seen.output),
            _ => None,
        }
    }

    /// The output of the action of that name in the graph, as a type.
    ///
    /// # Errors
    /// A fatal error if it does not run before this action, or its output does not fit the type.
    #[track_caller]
    pub fn output_of<T: DeserializeOwned>(&self, action: &str) -> Result<T, ActionError> {
        match self.seen().find(|seen| seen.action == action) {
            Some(seen) => decode(&seen.output, &format!("output of `{action}`")),
            None => Err(ActionError::fatal(format!(
                "the output of `{action}` is not there: no action of that name runs before this one"
            ))),
        }
    }

    /// What the action is given, as one document: `{ milestone: <parameters>, <action>: <output>, .. }` with the outputs of all actions
    /// that ran before it, by their names in the graph. An action of the binary sees those that its arguments ask for.
    pub fn input(&self) -> Document {
        let mut input = Document::new();
        input.insert("milestone", self.inner.parameters.to_tree());
        for seen in self.seen() {
            input.insert(&seen.action, seen.output.clone());
        }
        input
    }

    fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.inner.outputs.iter().chain(self.inner.settled.get())
    }

    pub(crate) fn inner(&self) -> &CallInner {
        &self.inner
    }

    pub(crate) fn state(&self, id: TypeId) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.inner.states.get(&id)
    }
}
