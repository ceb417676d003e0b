//! The actions that a process can run, by their durable names: those of the binary, and those registered at run time.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    fmt,
    panic::Location,
    sync::{Arc, PoisonError, RwLock},
};

use milestone_core::graph::{GraphError, check_name};
use serde::Serialize;

use crate::{
    action::{ActionFuture, Call, Input, Options, Registration, boxed_failure, encode},
    engine::body,
    error::Error,
};

/// The function of an action, as the engine calls it.
pub(crate) type Function = Arc<dyn Fn(Call) -> ActionFuture + Send + Sync>;

/// An action registered at run time: a name, an async closure, and options.
///
/// ```
/// use milestone_runtime::{Method, action::Options, prelude::*};
///
/// let greet = Method::new("greet", |call| async move { Ok::<_, ActionError>(format!("hello {}", call.parameters())) })
///     .options(Options::idempotent());
/// assert_eq!(greet.name(), "greet");
/// ```
#[derive(Clone)]
pub struct Method {
    pub(crate) name: String,
    pub(crate) options: Options,
    /// What it takes; `None` for one made at run time, which may take anything.
    pub(crate) inputs: Option<&'static [Input]>,
    pub(crate) function: Function,
    pub(crate) location: &'static Location<'static>,
}

impl Method {
    /// An action of that durable name. It is plain, at most once, unless [`Method::options`] says otherwise.
    #[track_caller]
    pub fn new<F, Fut, T, E>(name: impl Into<String>, function: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let function: Function = Arc::new(move |call| {
            let future = function(call);
            Box::pin(async move {
                match future.await {
                    Ok(output) => encode(&output),
                    Err(error) => Err(boxed_failure(error)),
                }
            })
        });
        Self {
            name: name.into(),
            options: Options::plain(),
            inputs: None,
            function,
            location: Location::caller(),
        }
    }

    /// Sets how often it may run, and how it is retried.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Its durable name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl From<&Registration> for Method {
    fn from(registration: &Registration) -> Self {
        Self {
            name: registration.name.to_owned(),
            options: registration.options,
            inputs: Some(registration.inputs),
            function: body::plain(registration.call),
            location: registration.location,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    methods: RwLock<BTreeMap<String, Method>>,
}

impl Registry {
    /// Takes the actions of the binary, and refuses two of one name.
    pub(crate) fn of_binary<'r>(
        registrations: impl IntoIterator<Item = &'r Registration>,
        graphs: impl IntoIterator<Item = &'r Registration>,
    ) -> Result<Self, Error> {
        let mut methods: BTreeMap<String, Method> = BTreeMap::new();
        for registration in registrations {
            let method = Method::from(registration);
            if let Some(other) = methods.insert(method.name.clone(), method) {
                return Err(Error::TwoActions {
                    name: registration.name.to_owned(),
                    first: other.location.to_string(),
                    second: registration.location.to_string(),
                });
            }
        }
        // A graph carries its actions, so that one whose own registration the linker dropped is there all the same.
        for registration in graphs {
            methods
                .entry(registration.name.to_owned())
                .or_insert_with(|| Method::from(registration));
        }
        Ok(Self {
            methods: RwLock::new(methods),
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Method> {
        self.read().get(name).cloned()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.read().contains_key(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.read().keys().cloned().collect()
    }

    pub(crate) fn queues(&self) -> BTreeSet<String> {
        self.read()
            .values()
            .filter_map(|method| method.options.queue.map(str::to_owned))
            .collect()
    }

    pub(crate) fn methods(&self) -> Vec<Method> {
        self.read().values().cloned().collect()
    }

    /// Keeps only these, and says which of them do not exist.
    pub(crate) fn retain(&self, names: &[String]) -> Vec<String> {
        let mut methods = self.write();
        let missing = names
            .iter()
            .filter(|name| !methods.contains_key(*name))
            .cloned()
            .collect();
        methods.retain(|name, _| names.contains(name));
        missing
    }

    /// All of them or, if one has a name that cannot be, none.
    pub(crate) fn register(&self, new: Vec<Method>) -> Result<(), GraphError> {
        for method in &new {
            check_name("a method", &method.name)?;
        }
        let mut methods = self.write();
        for method in new {
            methods.insert(method.name.clone(), method);
        }
        Ok(())
    }

    pub(crate) fn unregister(&self, name: &str) -> bool {
        self.write().remove(name).is_some()
    }

    pub(crate) fn clear(&self) {
        self.write().clear();
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Method>> {
        self.methods.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Method>> {
        self.methods.write().unwrap_or_else(PoisonError::into_inner)
    }
}
