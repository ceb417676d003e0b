//! The actions that a process can run, by their durable names: those of the binary, and those registered at run time.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    fmt,
    panic::Location,
    sync::{Arc, PoisonError, RwLock},
};

use milestone_core::graph::check_name;
use serde::Serialize;

use crate::{
    action::{ActionFuture, Call, Input, Mode, Options, Registration, boxed_failure, encode},
    engine::body,
    error::Error,
    mongo::{
        Tx, TxFuture,
        tx::{Body, boxed, transactional_by},
    },
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
    /// Whether its function runs in a transaction.
    pub(crate) transactional: bool,
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
            transactional: false,
            location: Location::caller(),
        }
    }

    /// A transactional action of that durable name: its function is given its transaction, and may be run several times in one attempt, see
    /// [`Tx`]. Its options begin with [`Options::transactional`].
    ///
    /// ```
    /// use bson::{Document, doc};
    /// use milestone_runtime::{Method, prelude::*};
    ///
    /// let open = Method::transactional("open", |call, tx| Box::pin(async move {
    ///     let account = doc! { "_id": call.parameters().clone(), "balance": 0_i64 };
    ///     let accounts = tx.collection::<Document>("accounts");
    ///     tx.run(accounts.insert_one(account)).await?;
    ///     Ok::<_, ActionError>(())
    /// }));
    /// assert_eq!(open.name(), "open");
    /// ```
    #[track_caller]
    pub fn transactional<F, T, E>(name: impl Into<String>, function: F) -> Self
    where
        F: for<'t> Fn(&'t Call, &'t mut Tx) -> TxFuture<'t, Result<T, E>> + Send + Sync + 'static,
        T: Serialize + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let body: Arc<Body> = boxed(move |call, tx| {
            let future = function(call, tx);
            Box::pin(async move {
                match future.await {
                    Ok(output) => encode(&output),
                    Err(error) => Err(boxed_failure(error)),
                }
            })
        });
        Self {
            name: name.into(),
            options: Options::transactional(),
            inputs: None,
            function: Arc::new(move |call| transactional_by(call, Arc::clone(&body))),
            transactional: true,
            location: Location::caller(),
        }
    }

    /// Its function and its options must agree on whether it runs in a transaction.
    fn check(&self) -> Result<(), Error> {
        let promised = self.options.mode == Mode::Transactional;
        match (promised, self.transactional) {
            (true, false) => Err(Error::NoTransaction {
                method: self.name.clone(),
            }),
            (false, true) => Err(Error::TransactionForNothing {
                method: self.name.clone(),
            }),
            _ => Ok(()),
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
            transactional: registration.options.mode == Mode::Transactional,
            location: registration.location,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    methods: RwLock<BTreeMap<String, Arc<Method>>>,
}

impl Registry {
    /// Takes the actions of the binary, and refuses two of one name.
    pub(crate) fn of_binary<'r>(
        registrations: impl IntoIterator<Item = &'r Registration>,
        graphs: impl IntoIterator<Item = &'r Registration>,
    ) -> Result<Self, Error> {
        let mut methods: BTreeMap<String, Arc<Method>> = BTreeMap::new();
        for registration in registrations {
            let method = Method::from(registration);
            if let Some(other) = methods.insert(method.name.clone(), Arc::new(method)) {
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
                .or_insert_with(|| Arc::new(Method::from(registration)));
        }
        Ok(Self {
            methods: RwLock::new(methods),
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Method>> {
        self.read().get(name).cloned()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.read().contains_key(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.read().keys().cloned().collect()
    }

    /// Those that a claim may begin: see [`milestone_core::machine::Begins`].
    pub(crate) fn begun_by_claims(&self) -> BTreeSet<String> {
        self.read()
            .values()
            .filter(|method| {
                method.options.mode.repeatable() && method.options.concurrency.is_none()
            })
            .map(|method| method.name.clone())
            .collect()
    }

    pub(crate) fn queues(&self) -> BTreeSet<String> {
        self.read()
            .values()
            .filter_map(|method| method.options.queue.map(str::to_owned))
            .collect()
    }

    pub(crate) fn methods(&self) -> Vec<Arc<Method>> {
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

    /// All of them or, if one has a name or options that cannot be, none.
    pub(crate) fn register(&self, new: Vec<Method>) -> Result<(), Error> {
        for method in &new {
            check_name("a method", &method.name)?;
            method.check()?;
        }
        let mut methods = self.write();
        for method in new {
            methods.insert(method.name.clone(), Arc::new(method));
        }
        Ok(())
    }

    pub(crate) fn unregister(&self, name: &str) -> bool {
        self.write().remove(name).is_some()
    }

    pub(crate) fn clear(&self) {
        self.write().clear();
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<Method>>> {
        self.methods.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Arc<Method>>> {
        self.methods.write().unwrap_or_else(PoisonError::into_inner)
    }
}
