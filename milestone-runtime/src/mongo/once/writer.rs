//! One call of `once`: what it reads and writes, how long it tries, and under what lease.

use std::{sync::Arc, time::Duration};

use bson::{Bson, DateTime, Document, doc};
use mongodb::{Collection, error::Error, options::UpdateModifications};
use tokio::{sync::oneshot, time::Instant};

use super::{
    cluster, command,
    error::{OnceError, Target},
    fence::{Fence, Times, fence},
    reply::{Reply, Seen, judge},
};
use crate::{
    action::Context,
    engine::{Shared, hold::CallGuard},
    mongo::trace::{Marker, Place, Trace, WitnessKey},
    store::{
        StoreError,
        mongodb::{MongoStore, errors},
    },
};

/// How long a write may wait for its majority.
const MAJORITY_PATIENCE: Duration = Duration::from_secs(10);

/// The first and the longest wait between two tries.
const WAITS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// A call on one document.
pub(super) struct Writer {
    cx: Context,
    collection: Collection<Document>,
    place: Place,
    pub(super) target: Target,
    /// When it gives up.
    give_up: Instant,
    tries: u32,
    /// What it writes once.
    key: Option<WitnessKey>,
    /// Whether the fate of something that was sent is not known.
    pub(super) is_unsettled: bool,
}

impl Writer {
    pub(super) fn new(cx: Context, collection: Collection<Document>, id: Bson) -> Self {
        let namespace = collection.namespace();
        let target = Target::new(&namespace.db, &namespace.coll, &id);
        let lease = cx.shared().config.lease;
        Self {
            place: Place {
                database: namespace.db,
                collection: namespace.coll,
                id,
            },
            target,
            give_up: Instant::now() + lease.max(Duration::from_secs(5)),
            tries: 0,
            key: None,
            is_unsettled: false,
            collection,
            cx,
        }
    }

    /// Whether an earlier attempt may have written.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.cx.attempt() > 1
    }

    pub(super) fn id(&self) -> &Bson {
        &self.place.id
    }

    /// The document by its `_id` alone.
    pub(super) fn by_id(&self) -> Document {
        doc! { "_id": self.place.id.clone() }
    }

    pub(super) fn update(
        &self,
        filter: Document,
        update: UpdateModifications,
        markers: &[Document],
        fence: &Fence,
    ) -> Document {
        let update = command::with_markers(update, markers);
        command::update(&self.place.collection, filter, update, fence)
    }

    pub(super) fn insert(&self, document: &Document, fence: &Fence) -> Document {
        command::insert(&self.place.collection, document, fence)
    }

    pub(super) fn delete(&self, filter: Document, fence: &Fence) -> Document {
        command::delete(&self.place.collection, filter, fence)
    }

    /// A marker as it is stored now.
    pub(super) fn stored(&self, marker: &Marker) -> Document {
        marker.stored(self.shared().clock.now())
    }

    fn shared(&self) -> &Arc<Shared> {
        self.cx.shared()
    }

    /// Before the first use of a collection by this process.
    pub(super) async fn prepare(&mut self) -> Result<(), OnceError> {
        let namespace = self.collection.namespace();
        if self.shared().once.has(&namespace) {
            return Ok(());
        }
        if self.shared().store.mongodb().is_none() {
            return Err(OnceError::NotMongoDb {
                collection: namespace.to_string(),
            });
        }
        loop {
            match self.introduce().await {
                Ok(()) => {
                    self.shared().once.add(&namespace);
                    return Ok(());
                }
                Err(error) => self.again(error).await?,
            }
        }
    }

    async fn introduce(&self) -> Result<(), OnceError> {
        let namespace = self.collection.namespace();
        let theirs = self.hello().await?;
        let ours = self
            .store(|store| async move { store.hello().await })
            .await?;
        if !cluster::is_same(&theirs, &ours) {
            return Err(OnceError::OtherCluster {
                collection: namespace.to_string(),
                theirs: cluster::describe(&theirs),
                ours: cluster::describe(&ours),
            });
        }
        self.store(|store| async move { store.note_marked(&namespace).await })
            .await
    }

    /// What the collection's server says of itself.
    async fn hello(&self) -> Result<Document, OnceError> {
        let admin = self.collection.client().database("admin");
        let hello = async move { admin.run_command(doc! { "hello": 1 }).await };
        let reply = self.run(hello, self.patience()).await;
        reply.map_err(|error| self.as_error(&error))
    }

    /// Whether the collection's server is past what this call has begun with: what was to be written before cannot be any more.
    pub(super) async fn is_past(&self, time: DateTime) -> Result<bool, OnceError> {
        let hello = self.hello().await?;
        Ok(hello
            .get_datetime("localTime")
            .is_ok_and(|now| *now >= time))
    }

    pub(super) fn now(&self) -> DateTime {
        self.shared().clock.now()
    }

    /// A call of the milestones' store, on the executor that is its own.
    async fn store<T, F>(
        &self,
        call: impl FnOnce(StoreHandle) -> F + Send + 'static,
    ) -> Result<T, OnceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let store = StoreHandle(Arc::clone(self.shared()));
        let called = self
            .shared()
            .io
            .spawn(async move { call(store).await })
            .await;
        match called {
            Ok(result) => result.map_err(|error| OnceError::Store(Arc::new(error))),
            Err(_) => Err(self.unsettled("the runtime is being closed")),
        }
    }

    /// Which of the writes have a witness, since their markers were taken away with their milestone failed.
    pub(super) async fn witnesses(
        &self,
        markers: &[&Marker],
    ) -> Result<Vec<WitnessKey>, OnceError> {
        let keys: Vec<WitnessKey> = markers.iter().map(|marker| self.witness(marker)).collect();
        self.store(move |store| async move { store.find_witnesses(&keys).await })
            .await
    }

    pub(super) fn witness(&self, marker: &Marker) -> WitnessKey {
        marker.witness(&self.place)
    }

    /// The bounds of a write that is sent now, once the lease allows one.
    pub(super) async fn fence(&self) -> Result<Fence, OnceError> {
        loop {
            let shared = self.shared();
            let times = Times {
                lease_until: self.cx.hold().until(),
                now: shared.clock.now(),
                latest: shared.clock.latest(),
            };
            let config = &shared.config;
            if let Some(fence) = fence(times, config.lease, config.clock_skew, MAJORITY_PATIENCE) {
                return Ok(fence);
            }
            self.wait_for_lease().await?;
        }
    }

    /// Proves that nobody else had the milestone until now: what was read was true of it.
    pub(super) async fn confirm(&self) -> Result<(), OnceError> {
        let read_at = self.shared().clock.latest();
        while self.cx.hold().until() <= read_at {
            self.wait_for_lease().await?;
        }
        Ok(())
    }

    /// Before it is said that nothing was written: whether a copy of the write is on its way, of an earlier attempt or with a reply that was lost.
    /// If so it is waited for, so one has to look again.
    pub(super) async fn was_on_its_way(&self) -> bool {
        let is_writing = || {
            let key = self.key.as_ref();
            key.is_some_and(|key| self.cx.hold().is_writing(key))
        };
        if !is_writing() {
            return false;
        }
        while is_writing() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    async fn wait_for_lease(&self) -> Result<(), OnceError> {
        if self.cx.is_cancelled() || Instant::now() >= self.give_up {
            return Err(OnceError::Lost {
                target: self.target.clone(),
            });
        }
        let wait = self.shared().config.lease / 50;
        tokio::time::sleep(wait.min(Duration::from_millis(50))).await;
        Ok(())
    }

    /// Sends a write. The milestone is not handed back, and nothing of it undone, before its fate is known or its time is over.
    pub(super) async fn write(&mut self, command: Document, fence: &Fence) -> Reply {
        let guard = match &self.key {
            Some(key) => self.cx.hold().write(key),
            None => self.cx.hold().call(),
        };
        // In this order: what the engine begins next either sees the call, or the call sees that its attempt is over.
        if self.cx.is_over() {
            return Reply::Refused(OnceError::Phase {
                reason: "`cx.once(..)` was called after its attempt had ended or was given up: await it in the action, not in a task of its own, and stop when \
                         `cx.cancelled()` says so",
            });
        }
        let database = self.collection.client().database(&self.place.database);
        let call = async move { database.run_command(command).await };
        let reply = self.run_guarded(call, guard, fence).await;
        self.is_unsettled |= matches!(reply, Reply::Unsettled(_));
        reply
    }

    /// Reads the markers of the document, if it is there and meets the filter.
    pub(super) async fn read(&self, filter: &Document) -> Result<Option<Seen>, OnceError> {
        let level = self
            .shared()
            .store
            .mongodb()
            .map_or("local", MongoStore::settled);
        let patience = self.patience();
        let find = command::find(&self.place.collection, filter, level, patience);
        let database = self.collection.client().database(&self.place.database);
        let call = async move { database.run_command(find).await };
        match self.run(call, patience).await {
            Ok(reply) => Ok(Seen::read(&reply)),
            Err(error) => Err(self.as_error(&error)),
        }
    }

    fn as_error(&self, error: &Error) -> OnceError {
        match super::reply::failed(&self.target, error) {
            Reply::Unsettled(error) | Reply::Refused(error) => error,
            _ => self.unsettled("the server's reply is not understood"),
        }
    }

    fn unsettled(&self, reason: &str) -> OnceError {
        OnceError::Unsettled {
            target: self.target.clone(),
            reason: reason.to_owned(),
        }
    }

    fn patience(&self) -> Duration {
        let left = self.give_up.saturating_duration_since(Instant::now());
        left.max(Duration::from_secs(1))
    }

    /// Runs a call of the driver on the application's executor, to its end also if whoever waits for it is dropped.
    async fn run(
        &self,
        call: impl Future<Output = Result<Document, Error>> + Send + 'static,
        patience: Duration,
    ) -> Result<Document, Error> {
        let called = self.shared().application.spawn(timed(call, patience)).await;
        called.unwrap_or_else(|_| Err(Error::custom("the runtime is being closed")))
    }

    /// Runs a write like that. The guard is held until its fate is known, or the server is done with it whatever became of the reply.
    async fn run_guarded(
        &self,
        call: impl Future<Output = Result<Document, Error>> + Send + 'static,
        guard: CallGuard,
        fence: &Fence,
    ) -> Reply {
        let (tell, told) = oneshot::channel();
        let (shared, target, end) = (Arc::clone(self.shared()), self.target.clone(), fence.end());
        self.shared().application.spawn(async move {
            // A reply later than that tells no more than a read.
            let reply = timed(call, shared.clock.wait_until(end)).await;
            let reply = judge(&target, reply);
            let is_open = matches!(reply, Reply::Unsettled(_));
            // Whoever waited may be gone.
            let _ = tell.send(reply);
            if is_open {
                tokio::time::sleep(shared.clock.wait_until(end)).await;
            }
            drop(guard);
        });
        let closed = |_| Reply::Unsettled(self.unsettled("the runtime is being closed"));
        told.await.unwrap_or_else(closed)
    }

    /// After an error: waits a little before the next try, if it is one that may pass and there is time left.
    pub(super) async fn again(&mut self, error: OnceError) -> Result<(), OnceError> {
        let may_pass = match &error {
            OnceError::Unsettled { .. } | OnceError::Late { .. } | OnceError::Crowded { .. } => {
                true
            }
            OnceError::Store(error) => match &**error {
                StoreError::Unreachable { .. } => true,
                StoreError::MongoDb(error) => {
                    !errors::command_code(error).is_some_and(errors::is_for_good)
                }
                _ => false,
            },
            _ => false,
        };
        let [first, longest] = WAITS;
        let wait = first
            .saturating_mul(2_u32.saturating_pow(self.tries))
            .min(longest);
        let wait = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.tries += 1;
        if !may_pass || Instant::now() + wait >= self.give_up {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    pub(super) fn late(&self) -> OnceError {
        OnceError::Late {
            target: self.target.clone(),
        }
    }

    pub(super) fn missing(&self) -> OnceError {
        OnceError::Missing {
            target: self.target.clone(),
        }
    }

    pub(super) fn unmatched(&self) -> OnceError {
        OnceError::Unmatched {
            target: self.target.clone(),
        }
    }

    pub(super) fn duplicate(&self, reason: String) -> OnceError {
        OnceError::Duplicate {
            target: self.target.clone(),
            reason,
        }
    }

    /// Tells the cleaner of a marker that is on the document.
    pub(super) fn left(&self, marker: &Marker) {
        self.shared().traces.left(Trace::Marker {
            place: self.place.clone(),
            marker: marker.clone(),
        });
    }

    /// Tells the cleaner of a witness.
    pub(super) fn left_witness(&self, key: WitnessKey) {
        self.shared().traces.left(Trace::Witness(key));
    }

    /// Notes that this attempt writes it; an error if it does so already.
    pub(super) fn claim(&mut self, marker: &Marker) -> Result<Using, OnceError> {
        if self.cx.is_in_transaction() {
            return Err(OnceError::Phase {
                reason: "`cx.once(..)` is not for a transactional action: its body may be run several times, and what it writes outside of its transaction \
                         stays when that is not committed; write it by `tx.run(..)`, or in an action of its own",
            });
        }
        let key = self.witness(marker);
        self.key = Some(key.clone());
        if !self.cx.use_once(&key) {
            return Err(OnceError::Twice {
                action: self.cx.action().to_owned(),
                target: self.target.clone(),
            });
        }
        Ok(Using {
            cx: self.cx.clone(),
            key: Some(key),
        })
    }
}

async fn timed(
    call: impl Future<Output = Result<Document, Error>>,
    patience: Duration,
) -> Result<Document, Error> {
    let reply = tokio::time::timeout(patience, call).await;
    reply.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}

/// A call that goes on. If it ends without an answer, also when it is dropped, the same attempt may make it again.
pub(super) struct Using {
    cx: Context,
    key: Option<WitnessKey>,
}

impl Using {
    /// The result of the call.
    pub(super) fn end<T>(mut self, result: Result<T, OnceError>) -> Result<T, OnceError> {
        if result.as_ref().err().is_none_or(OnceError::is_an_answer) {
            self.key = None;
        }
        result
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.cx.forget_once(key);
        }
    }
}

/// The store of the milestones, which is MongoDB.
struct StoreHandle(Arc<Shared>);

impl std::ops::Deref for StoreHandle {
    type Target = MongoStore;

    fn deref(&self) -> &MongoStore {
        self.0
            .store
            .mongodb()
            .expect("it is asked for only where the store is MongoDB")
    }
}
