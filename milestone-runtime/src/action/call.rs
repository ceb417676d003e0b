//! One call of an action: what the extractors read.

use std::{any::Any, any::TypeId, collections::HashMap, pin::Pin, sync::Arc};

use bson::Bson;

use super::{ActionError, Context, Extract, Failure};

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
    pub(crate) parameters: Arc<Bson>,
    /// The outputs that it can see: method and value.
    pub(crate) outputs: Vec<(String, Bson)>,
    pub(crate) states: Arc<States>,
    pub(crate) context: Context,
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
        &self.inner.parameters
    }

    /// The output of an action that has run before, by the durable name of its method; `None` if there is not exactly one.
    pub fn output(&self, method: &str) -> Option<&Bson> {
        let mut found = self.inner.outputs.iter().filter(|(name, _)| name == method);
        match (found.next(), found.next()) {
            (Some((_, output)), None) => Some(output),
            _ => None,
        }
    }

    pub(crate) fn state(&self, id: TypeId) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.inner.states.get(&id)
    }
}
