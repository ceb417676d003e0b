//! A runtime: where milestones are started, run and read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bson::{Bson, DateTime, Document};
use milestone_core::{
    graph::{Plan, Resolved},
    machine::NewMilestone,
    record::{MilestoneId, MilestoneRecord},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{mpsc, oneshot};

use crate::{
    action::{from_value, to_value},
    builder::{RuntimeBuilder, check_transactions},
    definition::{Definition, Graph, Milestone, Yields},
    dynamic::Action,
    engine::{Shared, ended::Ended, message::Message, pass::RunReport},
    error::Error,
    executor::Executor,
    handle::{Handle, OutcomeError},
    metrics::Metrics,
    registry::Method,
    start::{Start, StartError, new_milestone},
    store::{Filter, Listed, Page, StoreError, Tally, WorkerInfo},
};

/// A runtime: it starts milestones, runs them once it is told to, and reads them. Cheap to clone; when the last clone is dropped, what
/// it runs is dropped, and another worker takes over when the leases end. [`Runtime::shutdown`] ends it in order.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tell: mpsc::UnboundedSender<Message>,
    pub(crate) executor: Arc<Executor>,
    /// What the database server is, for people.
    pub(crate) server: String,
    /// What was made at the start, where that was asked for.
    pub(crate) lacked: Vec<String>,
    /// Whether it was ever told to work.
    pub(crate) works: AtomicBool,
    /// Whether somebody was told that it does not.
    pub(crate) warned: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without an engine there is nothing to close.
        let _ = self.tell.send(Message::Close);
        let store = Arc::clone(&self.shared.store);
        let worker = self.shared.worker.clone();
        let executor = Arc::clone(&self.executor);
        self.executor.tasks().spawn(async move {
            if let Err(error) = store.retire(worker).await {
                tracing::debug!(%error, "the worker's entry stays");
            }
            drop(executor);
        });
    }
}

impl Runtime {
    /// Begins to build a runtime on the store of a URI: `mongodb://host/database`, `sqlite:path/to/file.db` or `memory:`.
    pub fn builder(uri: impl Into<String>) -> RuntimeBuilder {
        RuntimeBuilder::new(uri.into())
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The identity of this worker, new at each start.
    pub fn worker(&self) -> &str {
        &self.inner.shared.worker
    }

    /// What the database server is, for people.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// What the collection lacked when it was opened, such as an index, by name. It is asked for by [`RuntimeBuilder::existing`] only, and
    /// is made by then.
    pub fn lacked(&self) -> &[String] {
        &self.inner.lacked
    }

    /// The time of the database server, as it is estimated here.
    pub fn now(&self) -> DateTime {
        self.inner.shared.clock.now()
    }

    /// Works until it is shut down: takes what is due, runs it, and runs what is started here at once. Called again, it does nothing new.
    pub fn spawn(&self) -> Robot {
        // The engine lives as long as this runtime does.
        let _ = self.inner.tell.send(Message::Serve);
        self.inner.works.store(true, Ordering::Relaxed);
        self.inner.shared.retired.store(false, Ordering::Relaxed);
        Robot {
            runtime: self.clone(),
        }
    }

    /// Works until `stop` says so, then shuts down, see [`Runtime::shutdown`]: what a `main` ends with. `stop` is called once more then; if
    /// that resolves while actions still end, the grace period is over at once: what is left is cut off and handed back.
    ///
    /// ```no_run
    /// # use milestone_runtime::Runtime;
    /// # async fn main_(runtime: Runtime) {
    /// runtime.run_until(milestone_runtime::stop_signal).await;
    /// # }
    /// ```
    pub async fn run_until<S, F>(&self, stop: S)
    where
        S: Fn() -> F,
        F: Future,
    {
        // It listens before anything runs, so that no signal finds nobody.
        let mut told = std::pin::pin!(stop());
        if futures_util::poll!(told.as_mut()).is_pending() {
            self.spawn();
            told.await;
        }
        tracing::info!(worker = %self.worker(), "told to stop: actions that run may end within the grace period; told again, they are cut off");
        let mut shutdown = std::pin::pin!(self.shutdown());
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            _ = stop() => tracing::warn!(worker = %self.worker(), "told to stop again: what runs is cut off and handed back"),
        }
        tokio::join!(shutdown, self.shutdown_within(Duration::ZERO));
    }

    /// Makes one pass over all that is due now, and tells what it has done. What fails in it is not tried again in the same pass.
    ///
    /// # Errors
    /// [`Error::Closed`] if the runtime is closing.
    pub async fn run_once(&self) -> Result<RunReport, Error> {
        let (reply, answer) = oneshot::channel();
        self.inner
            .tell
            .send(Message::RunOnce { reply })
            .map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)
    }

    /// Begins nothing new, lets actions end within the grace period of the builder while their leases are still renewed, then cancels
    /// what is left and hands it back: what is idempotent starts elsewhere at once, plain actions are in doubt. The runtime can still start
    /// and read milestones afterwards, and work again after [`Runtime::spawn`].
    pub async fn shutdown(&self) {
        self.shutdown_within(self.inner.shared.config.grace).await;
    }

    /// As [`Runtime::shutdown`], with another grace period.
    pub async fn shutdown_within(&self, grace: Duration) {
        let grace = grace.min(crate::config::LONGEST);
        let (reply, answer) = oneshot::channel();
        if self.inner.tell.send(Message::Stop { grace, reply }).is_ok() {
            // An engine that is gone has nothing to hand back.
            let _ = answer.await;
        }
        self.retire().await;
    }

    /// Tells people that this worker works no more. It is for people only, so it is not waited for long.
    async fn retire(&self) {
        const LONGEST: Duration = Duration::from_secs(2);
        let shared = &self.inner.shared;
        shared.retired.store(true, Ordering::Relaxed);
        let (store, worker) = (Arc::clone(&shared.store), shared.worker.clone());
        let retire = async move {
            match tokio::time::timeout(LONGEST, store.retire(worker)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "the worker's entry stays"),
                Err(_) => {
                    tracing::debug!("the worker's entry stays, since the database does not answer");
                }
            }
        };
        // An executor that is gone tells nobody anything.
        let _ = self.inner.executor.run(retire).await;
    }

    /// Starts many milestones of one type, in as few writes as possible. Each has a result of its own, in order.
    pub async fn start_many<M, O>(
        &self,
        milestones: impl IntoIterator<Item = M>,
    ) -> Vec<Result<Handle<O>, StartError>>
    where
        M: Milestone + Yields<O>,
        O: DeserializeOwned + Send + 'static,
    {
        let starts: Vec<_> = milestones
            .into_iter()
            .map(|milestone| milestone.start(self).into_future())
            .collect();
        futures_util::future::join_all(starts).await
    }

    /// Starts a milestone whose graph is made at run time. Its outcome is the outputs of all its actions, by name.
    pub fn start<P: Serialize>(
        &self,
        kind: &str,
        graph: impl Into<Action>,
        parameters: P,
    ) -> Start<Document> {
        let plan = graph.into().into_plan(|method| {
            let known = self.inner.shared.registry.get(method)?;
            Some(Resolved::from(&known.options))
        });
        let new = plan
            .map_err(|error| StartError::Invalid(error.into()))
            .and_then(|plan| Ok(new_milestone(kind, encode_parameters(&parameters)?, plan)));
        Start {
            runtime: self.clone(),
            new,
            decode: |record| Ok(record.outputs()),
        }
    }

    pub(crate) fn start_graph<P: Serialize, O: DeserializeOwned>(
        &self,
        kind: &str,
        graph: &Graph,
        parameters: &P,
    ) -> Start<O> {
        let new = Plan::try_from(graph)
            .map_err(|error| StartError::Invalid(error.into()))
            .and_then(|plan| Ok(new_milestone(kind, encode_parameters(parameters)?, plan)));
        Start {
            runtime: self.clone(),
            new,
            decode: decode_ends,
        }
    }

    pub(crate) async fn store_new(&self, new: NewMilestone) -> Result<(), StartError> {
        let shared = &self.inner.shared;
        if !shared.config.client {
            self.warn_of_unknown_methods(&new);
        }
        let id = new.id.clone();
        let record = MilestoneRecord::new(new, shared.clock.now(), &shared.config.limits)?;
        let (reply, answer) = oneshot::channel();
        let record = Box::new(record);
        self.inner
            .tell
            .send(Message::Start { record, reply })
            .map_err(|_| StartError::Closed)?;
        // One try of the driver may take longer than a start may. The engine gives up by itself between two tries, and can then tell more, so
        // it has a little longer.
        let timeout = shared.config.start_timeout;
        let longest = timeout + timeout / 4 + Duration::from_millis(100);
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or(Err(StartError::Closed)),
            () = shared.io.sleep(longest) => {
                let reason = format!("the database did not answer within {}", humantime::format_duration(timeout));
                Err(StartError::Unknown { id, error: Arc::new(StoreError::Other(reason)) })
            }
        }
    }

    /// What nobody can run waits for ever, and says so only in its document.
    pub(crate) fn warn_of_unknown_methods(&self, new: &NewMilestone) {
        let methods = new
            .plan
            .actions()
            .iter()
            .filter_map(|action| action.method.as_deref());
        for method in methods.filter(|method| !self.inner.shared.registry.has(method)) {
            tracing::warn!(
                kind = new.kind,
                method,
                "a milestone is started with an action that this worker does not have: it waits for one that has it \
                 (an action of a library is there only if something names the crate: `use my_actions as _;`)"
            );
        }
    }

    pub(crate) async fn wait(&self, id: MilestoneId) -> Result<Arc<Ended>, OutcomeError> {
        let inner = &self.inner;
        if !inner.shared.config.client
            && !inner.works.load(Ordering::Relaxed)
            && !inner.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "an outcome is waited for, but this runtime does not work: call `.spawn()`, or build it as `.client()` if others do"
            );
        }
        let (reply, answer) = oneshot::channel();
        self.inner
            .tell
            .send(Message::Watch {
                id: id.clone(),
                reply,
            })
            .map_err(|_| OutcomeError::Closed)?;
        match answer.await {
            Ok(Ok(Some(ended))) => Ok(ended),
            Ok(Ok(None)) => Err(OutcomeError::Removed { id }),
            Ok(Err(unreadable)) => Err(OutcomeError::Unreadable(unreadable)),
            Err(_) => Err(OutcomeError::Closed),
        }
    }

    pub(crate) fn handle_of<O: DeserializeOwned>(&self, id: MilestoneId) -> Handle<O> {
        Handle::new(self.clone(), id, decode_ends)
    }

    /// The handle of a milestone that was started before, here or elsewhere, whatever its type: its outcome is the outputs of all its
    /// actions, by name. Where the type is at hand, `Type::handle(&runtime, id)` gives the typed one. Whether it exists is seen when it is
    /// asked something.
    pub fn handle(&self, id: impl Into<MilestoneId>) -> Handle<Document> {
        Handle::new(self.clone(), id.into(), |record| Ok(record.outputs()))
    }

    /// Reads a milestone; `None` if there is none of that id.
    ///
    /// # Errors
    /// If the database does not answer, or the document cannot be read.
    pub async fn get(&self, id: impl Into<MilestoneId>) -> Result<Option<MilestoneRecord>, Error> {
        let ids = vec![id.into()];
        let found = self
            .call(|store| async move { store.get(ids).await })
            .await?;
        Ok(found.into_iter().next().transpose()?)
    }

    /// Reads milestones page by page, the newest first.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn list(&self, filter: Filter, page: Page) -> Result<Listed, Error> {
        self.call(|store| async move { store.list(filter, page).await })
            .await
    }

    /// Counts milestones.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn count(&self, filter: Filter) -> Result<u64, Error> {
        self.call(|store| async move { store.count(filter).await })
            .await
    }

    /// Counts milestones by type and state.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn tally(&self, filter: Filter) -> Result<Vec<Tally>, Error> {
        self.call(|store| async move { store.tally(filter).await })
            .await
    }

    /// Removes a milestone, whatever its state, and tells whether it was there. If a worker runs it, it finds out at its next write.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn remove(&self, id: impl Into<MilestoneId>) -> Result<bool, Error> {
        let id = id.into();
        self.call(|store| async move { store.remove(id).await })
            .await
    }

    /// The workers that have told that they live, dead ones too until somebody removes them.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        self.call(|store| async move { store.workers().await })
            .await
    }

    /// Registers an action under a durable name; one that has the name is replaced, also one of the binary.
    ///
    /// # Errors
    /// If the name cannot be used.
    #[track_caller]
    pub fn register(&self, method: Method) -> Result<(), Error> {
        self.register_all([method])
    }

    /// Registers actions: all of them or, if one has a name that cannot be used, none.
    ///
    /// # Errors
    /// If a name cannot be used, or one is transactional and the database has no transactions.
    pub fn register_all(&self, methods: impl IntoIterator<Item = Method>) -> Result<(), Error> {
        let methods: Vec<Method> = methods.into_iter().collect();
        let shared = &self.inner.shared;
        if let Some(reason) = shared.transactions.lacking()
            && !shared.config.client
        {
            check_transactions(&methods, reason)?;
        }
        shared.registry.register(methods)?;
        // The engine lives as long as this runtime does.
        let _ = self.inner.tell.send(Message::Registered);
        Ok(())
    }

    /// Unregisters an action, and tells whether it was registered. Attempts that run are not touched; further ones wait for a worker that
    /// has it.
    pub fn unregister(&self, name: &str) -> bool {
        self.inner.shared.registry.unregister(name)
    }

    /// Unregisters all actions, those of the binary too.
    pub fn unregister_all(&self) {
        self.inner.shared.registry.clear();
    }

    /// What this runtime has counted since it was built, such as milestones that it took and those that others took before it.
    pub fn metrics(&self) -> Metrics {
        self.inner.shared.counts.read()
    }

    pub(crate) async fn call<T, F, C>(&self, call: C) -> Result<T, Error>
    where
        C: FnOnce(Arc<dyn crate::store::Store>) -> F,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
        T: Send + 'static,
    {
        let store = Arc::clone(&self.inner.shared.store);
        Ok(self.inner.executor.run(call(store)).await??)
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("worker", &self.worker())
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

/// A runtime at work. Dropped, it goes on working as long as the runtime lives.
#[derive(Clone, Debug)]
pub struct Robot {
    runtime: Runtime,
}

impl Robot {
    /// As [`Runtime::shutdown`].
    pub async fn shutdown(&self) {
        self.runtime.shutdown().await;
    }
}

impl<P: Serialize, O: DeserializeOwned> Definition<P, O> {
    /// Starts a milestone of this graph: awaited, it is stored.
    pub fn start(self, runtime: &Runtime, parameters: P) -> Start<O> {
        runtime.start_graph(self.type_name(), self.graph, &parameters)
    }

    /// Starts a milestone of this graph with an id of the caller's, see [`Start::id`].
    pub fn start_with_id(
        self,
        runtime: &Runtime,
        id: impl Into<String>,
        parameters: P,
    ) -> Start<O> {
        self.start(runtime, parameters).id(id)
    }
}

fn encode_parameters<P: Serialize>(parameters: &P) -> Result<Bson, StartError> {
    to_value(parameters).map_err(|error| StartError::Parameters {
        kind: std::any::type_name::<P>(),
        reason: error.to_string(),
    })
}

/// The outputs of the last actions: one as it is, several as a tuple.
fn decode_ends<O: DeserializeOwned>(record: &MilestoneRecord) -> Result<O, String> {
    let mut outputs: Vec<Bson> = Vec::new();
    for index in record.ends() {
        let action = &record.actions[index];
        outputs.push(
            action
                .output
                .clone()
                .ok_or_else(|| format!("`{}` has no output", action.name))?,
        );
    }
    let value = match outputs.len() {
        1 => outputs.remove(0),
        _ => Bson::Array(outputs),
    };
    from_value(&value).map_err(|error| error.to_string())
}
