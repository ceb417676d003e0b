//! Builds a runtime, and finds every mistake that can be found before anything runs.

use std::{
    any::{Any, TypeId},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use milestone_core::{graph::Input, limits::Limits, options::Mode};
use tokio::sync::{mpsc, watch};

use crate::{
    action::{Registration, States},
    config::Config,
    definition::TypeRegistration,
    engine::{Engine, Shared, body::install_panic_hook, clock::Clock, hints, message::Message},
    error::Error,
    executor::{Executor, Tasks},
    ids::worker_id,
    metrics::Counts,
    mongo::{
        FieldSync,
        cleaner::{Cleaner, Traces},
        once::Known,
        tx::Transactions,
    },
    registry::{Method, Registry},
    runtime::{Inner, Runtime},
    store::{ServerInfo, Store, Wanted, WorkerInfo},
    uri,
};

/// Builds a [`Runtime`].
#[must_use = "a runtime is made by `.build().await`"]
pub struct RuntimeBuilder {
    uri: String,
    store: Option<Arc<dyn Store>>,
    collection: String,
    config: Config,
    states: States,
    state_twice: Option<&'static str>,
    actions: Option<Vec<String>>,
    methods: Vec<Method>,
    mongo_client: Option<mongodb::Client>,
    syncs: Vec<FieldSync>,
    #[cfg(feature = "testing")]
    process: Option<crate::testing::Process>,
    existing: bool,
}

/// How often a worker tells that it lives. It is for people only, so it is seldom.
const HEARTBEAT: Duration = Duration::from_mins(1);

impl RuntimeBuilder {
    pub(crate) fn new(uri: String) -> Self {
        Self {
            uri,
            store: None,
            collection: "_milestones_".to_owned(),
            config: Config::new(),
            states: States::default(),
            state_twice: None,
            actions: None,
            methods: Vec::new(),
            mongo_client: None,
            syncs: Vec::new(),
            #[cfg(feature = "testing")]
            process: None,
            existing: false,
        }
    }

    /// Uses a store of one's own instead of the one that the URI means.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The name of the worker, for people. Default: host and process. Its identity adds something new at each start.
    pub fn worker_name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// The collection of the milestones. Default `_milestones_`.
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = name.into();
        self
    }

    /// How long a worker may be silent before others take over what it holds; it renews at a third of that. Default 10 s, at least 100 ms.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// How often to look for work at the least, where no hint comes. Default 1 s.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.config.poll = poll;
        self
    }

    /// How many actions run at once. Default 100.
    pub fn concurrency(mut self, places: usize) -> Self {
        self.config.concurrency = places;
        self
    }

    /// How long actions may go on after a shutdown has begun. Default 30 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.config.grace = grace;
        self
    }

    /// How long the attempt of a plain action may still take effect after it was cut off: it is not undone before. Default: the action's
    /// timeout plus the grace period, at least 30 s.
    pub fn settle(mut self, settle: Duration) -> Self {
        self.config.settle = Some(settle);
        self
    }

    /// How long a start waits while the database is away, before it gives up as `Unknown` or `NotStored`. Default 30 s.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.config.start_timeout = timeout;
        self
    }

    /// How far the clocks of the database's servers may be apart, for the toolkit ([`mongo`](crate::mongo)): what `once` and transactions leave
    /// behind is removed one and a half times as long after it is of no more use. The same in all workers. Default 1 min, at least 100 ms.
    pub fn clock_skew(mut self, skew: Duration) -> Self {
        self.config.clock_skew = skew;
        self
    }

    /// The application's client of the MongoDB driver, for the transactions of [transactional actions](crate::mongo::Tx): a transaction and the
    /// collections that are used in it must be of one client. It must be one of the cluster on which the milestones are, made on the tokio
    /// runtime that actions run on. Default: one with the options of the store's URI, made when it is first needed.
    ///
    /// When this worker is taken for dead, whoever takes over ends the sessions in which it had transactions. The driver uses the sessions of a
    /// client for all that it does, so an operation of the application that is then under way in one of them is interrupted, and fails: give a
    /// client of its own where that may not be.
    pub fn mongo_client(mut self, client: mongodb::Client) -> Self {
        self.mongo_client = Some(client);
        self
    }

    /// How large things may become.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// A value that actions take as `State<T>`: a database handle, a client, settings. One of each type.
    pub fn state<T: Any + Send + Sync>(mut self, state: T) -> Self {
        if self
            .states
            .insert(TypeId::of::<T>(), Arc::new(state))
            .is_some()
        {
            self.state_twice = Some(std::any::type_name::<T>());
        }
        self
    }

    /// Runs only these actions, by their durable names. Default: all of the binary.
    pub fn actions<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.actions = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Registers an action that is made at run time.
    pub fn register(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    /// Keeps copies of fields in sync, see [`FieldSync`]: runs its fan-outs, and now and then looks for what was left, as long as it works.
    pub fn field_sync(mut self, sync: &FieldSync) -> Self {
        self.methods.push(sync.method());
        self.syncs.push(sync.clone());
        self
    }

    /// Runs nothing: milestones are started and read only, and no `State` is owed.
    pub fn client(mut self) -> Self {
        self.config.client = true;
        self
    }

    /// Runs everything on the executor of the caller, as a process that can be frozen and killed, see [`Process`](crate::testing::Process).
    /// For simulations.
    #[cfg(feature = "testing")]
    pub fn process(mut self, process: &crate::testing::Process) -> Self {
        self.process = Some(process.clone());
        self
    }

    /// Only a collection that exists: `build()` fails where there is none, instead of making it. For tools, so that a name that is mistyped
    /// makes nothing. See also [`Runtime::lacked`].
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Connects, checks everything that can be checked, and makes what the database lacks. Nothing runs before [`Runtime::spawn`] or
    /// [`Runtime::run_once`].
    ///
    /// # Errors
    /// Two actions of one name, a missing `State`, a transactional action where the database has no transactions, a setting out of its bounds, a URI that means no store, a database that cannot be
    /// reached (within the URI's own timeout) or used.
    pub async fn build(self) -> Result<Runtime, Error> {
        self.config.check()?;
        if let Some(state) = self.state_twice {
            return Err(Error::StateTwice { state });
        }
        let registry = self.registry()?;
        if !self.config.client {
            check_states(&registry, &self.states)?;
        }
        let (executor, application) = self.executors()?;
        FieldSync::prepare_all(&self.syncs).await?;
        let (uri, collection, given) = (self.uri, self.collection, self.store);
        let existing = self.existing;
        let opening = async move {
            let store = match given {
                Some(store) => store,
                None => uri::store(&uri, &collection)?,
            };
            let lacked = if existing {
                look(&*store, &uri, &collection).await?
            } else {
                Vec::new()
            };
            let asked = tokio::time::Instant::now();
            let info = store.open().await?;
            let clock = Clock::new(info.now, asked.elapsed());
            Ok::<_, crate::store::StoreError>((store, clock, info, lacked))
        };
        let (store, clock, info, lacked) = executor.run(opening).await??;
        let lacking = transactions_lacking(&info, store.mongodb().is_some());
        if let Some(reason) = lacking.as_ref().filter(|_| !self.config.client) {
            check_transactions(registry.methods().iter().map(AsRef::as_ref), reason)?;
        }
        install_panic_hook();
        let worker = worker_id(&self.config.name);
        let methods = registry.names();
        if self.config.client {
            tracing::info!(%worker, server = %info.description, "a client is ready; it runs nothing");
        } else {
            tracing::info!(%worker, server = %info.description, actions = %methods.join(", "), "a worker is ready");
        }
        let (traces, left) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            traces: Traces::new(traces),
            once: Known::default(),
            clock,
            worker,
            store,
            registry,
            states: Arc::new(self.states),
            transactions: Transactions::new(self.mongo_client, lacking),
            io: executor.tasks().clone(),
            application,
            counts: Counts::default(),
            wanted: watch::Sender::new(Wanted::default()),
            retired: AtomicBool::new(false),
            config: self.config,
        });
        let (tell, inbox) = mpsc::unbounded_channel();
        let engine = Engine::new(Arc::clone(&shared), tell.clone(), inbox);
        let engine = executor.tasks().spawn(engine.run());
        let worker = shared.worker.clone();
        executor.tasks().spawn(async move {
            if engine.await.is_err_and(|error| error.is_panic()) {
                tracing::error!(%worker, "the engine has panicked, which is a bug: this runtime is closed, and others take over when its leases end");
            }
        });
        executor
            .tasks()
            .spawn(hints::pass_on(Arc::clone(&shared), tell.clone()));
        if shared.store.mongodb().is_some() && !shared.config.client {
            let cleaner = Cleaner::new(Arc::clone(&shared), left, tell.clone());
            executor.tasks().spawn(cleaner.run());
        }
        if !shared.config.client {
            executor
                .tasks()
                .spawn(heartbeats(Arc::clone(&shared), tell.clone()));
        }
        let (sweeps, works) = (self.syncs, !shared.config.client);
        let runtime = Runtime::new(Inner {
            shared,
            tell,
            executor,
            server: info.description,
            lacked,
            works: AtomicBool::new(false),
            warned: AtomicBool::new(false),
        });
        for sync in sweeps.into_iter().filter(|_| works) {
            let sweeping = sync.keep_sweeping(Arc::downgrade(&runtime.inner));
            runtime.inner.shared.application.spawn(sweeping);
        }
        Ok(runtime)
    }

    /// Where the engine runs, and where actions run.
    #[cfg_attr(
        not(feature = "testing"),
        expect(
            clippy::unused_self,
            reason = "only a process that is simulated stands in it"
        )
    )]
    fn executors(&self) -> Result<(Arc<Executor>, Tasks), Error> {
        let current = tokio::runtime::Handle::try_current().map_err(|_| Error::NoExecutor)?;
        #[cfg(feature = "testing")]
        if let Some(process) = &self.process {
            let tasks = Tasks::of_process(current, process.clone());
            return Ok((Arc::new(Executor::of(tasks.clone())), tasks));
        }
        let executor = Executor::new().map_err(|error| {
            Error::Store(crate::store::StoreError::Other(format!(
                "the threads for the database cannot be started: {error}"
            )))
        })?;
        Ok((Arc::new(executor), Tasks::on(current)))
    }

    fn registry(&self) -> Result<Registry, Error> {
        let graphs = inventory::iter::<TypeRegistration>()
            .flat_map(|kind| kind.graph.nodes.iter().map(|node| &node.payload));
        let registry = Registry::of_binary(inventory::iter::<Registration>(), graphs)?;
        if let Some(names) = &self.actions {
            let known = registry.names().join(", ");
            if let Some(name) = registry.retain(names).into_iter().next() {
                return Err(Error::UnknownAction { name, known });
            }
        }
        registry.register(self.methods.clone())?;
        Ok(registry)
    }
}

/// What an existing collection lacks.
async fn look(
    store: &dyn Store,
    uri: &str,
    collection: &str,
) -> Result<Vec<String>, crate::store::StoreError> {
    let lacked = store.lacks().await?;
    if lacked.iter().any(|name| name == collection) {
        return Err(crate::store::StoreError::Absent {
            server: uri::without_password(uri),
            collection: collection.to_owned(),
        });
    }
    Ok(lacked)
}

fn check_states(registry: &Registry, states: &States) -> Result<(), Error> {
    for method in registry.methods() {
        for input in method.inputs.unwrap_or_default() {
            if let Input::State { id, name } = input
                && !states.contains_key(id)
            {
                return Err(Error::MissingState {
                    action: method.name.clone(),
                    state: name(),
                });
            }
        }
    }
    Ok(())
}

/// Why there are no transactions, if there are none.
fn transactions_lacking(info: &ServerInfo, is_mongodb: bool) -> Option<String> {
    (!is_mongodb || !info.transactions).then(|| {
        format!(
            "this is {}; a replica set or a sharded cluster of MongoDB has them",
            info.description
        )
    })
}

/// Refuses transactional actions where there are no transactions.
pub(crate) fn check_transactions<'m>(
    methods: impl IntoIterator<Item = &'m Method>,
    reason: &str,
) -> Result<(), Error> {
    match methods
        .into_iter()
        .find(|method| method.options.mode == Mode::Transactional)
    {
        Some(method) => Err(Error::NoTransactions {
            action: method.name.clone(),
            reason: reason.to_owned(),
        }),
        None => Ok(()),
    }
}

async fn heartbeats(shared: Arc<Shared>, tell: mpsc::UnboundedSender<Message>) {
    let since = shared.clock.now();
    while !tell.is_closed() {
        let mut queues: Vec<String> = shared.registry.queues().into_iter().collect();
        queues.push(milestone_core::record::DEFAULT_QUEUE.to_owned());
        queues.sort();
        queues.dedup();
        let worker = WorkerInfo {
            id: shared.worker.clone(),
            name: shared.config.name.clone(),
            methods: shared.registry.names(),
            queues,
            since,
            seen_at: shared.clock.now(),
            next_at: shared.clock.in_future(HEARTBEAT),
        };
        if !shared.retired.load(std::sync::atomic::Ordering::Relaxed)
            && let Err(error) = shared.store.heartbeat(worker).await
        {
            tracing::debug!(%error, "the worker cannot tell that it lives");
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;
    use crate::action::ActionError;

    fn pay() -> Method {
        Method::transactional("pay", |_, _| Box::pin(async { Ok::<_, ActionError>(()) }))
    }

    #[test]
    fn transactional_actions_are_refused_where_there_are_no_transactions() {
        let now = DateTime::from_millis(7);
        let alone = ServerInfo::new("MongoDB 8.0.4, standalone, at a:1", now);
        let reason = transactions_lacking(&alone, true).unwrap();
        let error = check_transactions(&[pay()], &reason).unwrap_err();
        assert_eq!(error.code(), "no_transactions");
        let expected = "the action `pay` is transactional, but there are no transactions here: this is MongoDB 8.0.4, standalone, at a:1; a \
                        replica set or a sharded cluster of MongoDB has them. Use `cx.once(..)`, which does without them (MongoDB of any kind), \
                        or an idempotent action; or leave it out by `.actions([..])`, or run nothing by `.client()`";
        assert_eq!(error.to_string(), expected);
        let plain = Method::new("plain", |_| async { Ok::<_, ActionError>(()) });
        assert!(check_transactions(&[plain], &reason).is_ok());
        let set =
            ServerInfo::new("MongoDB 8.0.4, replica set rs0, at a:1", now).with_transactions();
        assert_eq!(transactions_lacking(&set, true), None);
        assert!(
            transactions_lacking(&set, false).is_some(),
            "a store of one's own"
        );
    }
}
