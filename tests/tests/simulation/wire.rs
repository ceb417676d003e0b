//! What is between a process and the database: calls that are lost, late, doubled, or answered to nobody.
//!
//! The wire carries a call out by itself: a process that is frozen or killed has no hand in it any more.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bson::DateTime;
use fastrand::Rng;
use milestone_runtime::{
    core::record::{Command, MilestoneId, MilestoneRecord, Unreadable},
    store::{
        ClaimRequest, Claimed, Commit, Committed, Filter, Hints, Insertion, Listed, Page,
        RenewRequest, Renewed, Sent, ServerInfo, Store, StoreError, StoreFuture, Wanted,
        WorkerInfo,
    },
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::{
    court::Court,
    log::Log,
    story::{Faults, LEASE},
};

/// What all wires have in common.
pub(crate) struct Weather {
    inner: Mutex<Sky>,
}

#[derive(Default)]
struct Sky {
    calm: bool,
    away_until: Option<Instant>,
}

impl Weather {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::default(),
        }
    }

    /// From now on nothing goes wrong any more, but for what is on its way.
    pub(crate) fn calm(&self) {
        self.sky().calm = true;
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.sky().calm
    }

    /// The database is away for so long.
    pub(crate) fn outage(&self, long: Duration) {
        self.sky().away_until = Some(Instant::now() + long);
    }

    fn is_away(&self) -> bool {
        let sky = self.sky();
        !sky.calm && sky.away_until.is_some_and(|until| Instant::now() < until)
    }

    fn sky(&self) -> std::sync::MutexGuard<'_, Sky> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way of one process to the database.
pub(crate) struct Wire {
    who: String,
    court: Arc<Court>,
    log: Arc<Log>,
    weather: Arc<Weather>,
    faults: Faults,
    inner: Mutex<Inner>,
}

struct Inner {
    rng: Rng,
    cut_until: Option<Instant>,
    /// What becomes of the next calls of some kinds, where a test says so.
    fates: BTreeMap<&'static str, VecDeque<Fate>>,
}

/// What becomes of one call.
#[derive(Default)]
pub(crate) struct Fate {
    /// How long the request takes.
    pub(crate) there: Duration,
    /// How long the reply takes.
    pub(crate) back: Duration,
    /// When whoever asked is told that nothing came back, though it may have arrived, or will.
    pub(crate) gives_up: Option<Duration>,
    /// It never arrives; whether that is known.
    pub(crate) lost: Option<bool>,
    /// A copy arrives so much later.
    pub(crate) copy: Option<Duration>,
}

type Carried<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

impl Wire {
    pub(crate) fn new(
        who: &str,
        court: &Arc<Court>,
        log: &Arc<Log>,
        weather: &Arc<Weather>,
        faults: Faults,
        rng: Rng,
    ) -> Self {
        Self {
            who: who.to_owned(),
            court: Arc::clone(court),
            log: Arc::clone(log),
            weather: Arc::clone(weather),
            faults,
            inner: Mutex::new(Inner {
                rng,
                cut_until: None,
                fates: BTreeMap::new(),
            }),
        }
    }

    /// This process alone is cut off for so long.
    pub(crate) fn cut(&self, long: Duration) {
        self.lock().cut_until = Some(Instant::now() + long);
    }

    /// What becomes of the next call of that kind, behind those that are told already.
    pub(crate) fn next(&self, what: &'static str, fate: Fate) {
        let mut inner = self.lock();
        inner.fates.entry(what).or_default().push_back(fate);
    }

    fn fate(&self, what: &str) -> Fate {
        if let Some(fate) = self
            .lock()
            .fates
            .get_mut(what)
            .and_then(VecDeque::pop_front)
        {
            return fate;
        }
        let mut fate = Fate::default();
        if self.weather.is_calm() {
            return fate;
        }
        let mut inner = self.lock();
        let is_cut = inner.cut_until.is_some_and(|until| Instant::now() < until);
        let rng = &mut inner.rng;
        let mut hits = |rate: u32| rng.u32(0..1000) < rate;
        let faults = &self.faults;
        let (short_there, short_back) = (hits(faults.short_delay), hits(faults.short_delay));
        let (long_there, long_back) = (hits(faults.long_delay), hits(faults.long_delay));
        let lost_request = hits(faults.lost_request);
        let lost_reply = hits(faults.lost_reply);
        let late = hits(faults.late);
        let copied = hits(faults.copied);
        let mut delay = |short: bool, long: bool| {
            let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
            Duration::from_millis(match (short, long) {
                (_, true) => rng.u64(0..lease * 2),
                (true, _) => rng.u64(1..60),
                _ => 0,
            })
        };
        fate.there = delay(short_there, long_there);
        fate.back = delay(short_back, long_back);
        if self.weather.is_away() || is_cut {
            fate.lost = Some(true);
            fate.back = delay(true, false);
        } else if lost_request {
            fate.lost = Some(false);
        } else if lost_reply {
            fate.gives_up = Some(fate.there + fate.back + delay(true, false));
        } else if late {
            fate.there += delay(false, true);
            fate.gives_up = Some(delay(true, false));
        }
        if copied {
            fate.copy = Some(delay(false, true));
        }
        fate
    }

    /// Carries a call to the database and its reply back. What may be carried out only once on its way is never copied.
    fn carry<T: Send + 'static>(
        &self,
        what: &'static str,
        may_be_copied: bool,
        call: impl Fn(Arc<Court>, String) -> Carried<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let fate = self.fate(what);
        let (court, who) = (Arc::clone(&self.court), self.who.clone());
        Box::pin(async move {
            if let Some(known) = fate.lost {
                sleep(fate.there + fate.back).await;
                self.log.note(&self.who, format_args!("{what} is lost"));
                return Err(unreachable(!known));
            }
            let copy = fate.copy.filter(|_| may_be_copied);
            let is_direct = fate.gives_up.is_none() && copy.is_none();
            if is_direct && fate.there.is_zero() && fate.back.is_zero() {
                return call(court, who).await;
            }
            let (reply, answer) = oneshot::channel();
            tokio::spawn(async move {
                sleep(fate.there).await;
                let result = call(Arc::clone(&court), who.clone()).await;
                sleep(fate.back).await;
                // Whoever asked may be gone.
                let _ = reply.send(result);
                if let Some(copy) = copy {
                    sleep(copy).await;
                    // Nobody hears what a copy is answered.
                    let _ = call(court, who).await;
                }
            });
            if let Some(gives_up) = fate.gives_up {
                sleep(gives_up).await;
                self.log
                    .note(&self.who, format_args!("{what} is not answered"));
                return Err(unreachable(true));
            }
            answer.await.unwrap_or_else(|_| Err(unreachable(true)))
        })
    }

    /// Which items of a batch are carried out but answered as unknown, and which are not even carried out.
    fn unknown(&self, items: usize) -> Vec<Option<bool>> {
        let mut inner = self.lock();
        let rate = if self.weather.is_calm() {
            0
        } else {
            self.faults.unknown_item
        };
        (0..items)
            .map(|_| (inner.rng.u32(0..1000) < rate).then(|| inner.rng.bool()))
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreachable(sent: bool) -> StoreError {
    StoreError::Unreachable {
        server: "the simulation".to_owned(),
        reason: "the seed says so".to_owned(),
        sent,
    }
}

/// Commits, some of whose items have a fate of their own.
async fn commit(
    court: Arc<Court>,
    who: String,
    batch: Vec<Commit>,
    unknown: Vec<Option<bool>>,
) -> Result<Vec<Committed>, StoreError> {
    let arriving = batch
        .into_iter()
        .zip(&unknown)
        .filter(|(_, unknown)| **unknown != Some(false))
        .map(|(commit, _)| commit)
        .collect();
    let mut told = court.commit(&who, arriving).await?.into_iter();
    let answers = unknown.iter().filter_map(|unknown| {
        let told = match unknown {
            Some(false) => None,
            _ => Some(told.next()?),
        };
        Some(match unknown {
            None => told?,
            Some(_) => Committed::Unknown(Arc::new(unreachable(true))),
        })
    });
    Ok(answers.collect())
}

impl Store for Wire {
    fn open(&self) -> StoreFuture<'_, ServerInfo> {
        self.court.store().open()
    }

    fn now(&self) -> StoreFuture<'_, DateTime> {
        self.carry("now", false, |court, _| {
            Box::pin(async move { court.store().now().await })
        })
    }

    fn insert(&self, batch: Vec<Arc<MilestoneRecord>>) -> StoreFuture<'_, Vec<Insertion>> {
        self.carry("insert", true, move |court, who| {
            let batch = batch.clone();
            Box::pin(async move { court.insert(&who, batch).await })
        })
    }

    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Claimed> {
        // A store takes by what it has just seen, so a second copy takes nothing.
        self.carry("claim", false, move |court, who| {
            let request = request.clone();
            Box::pin(async move { court.claim(&who, request).await })
        })
    }

    fn commit(&self, batch: Vec<Commit>) -> StoreFuture<'_, Vec<Committed>> {
        let unknown = self.unknown(batch.len());
        self.carry("commit", true, move |court, who| {
            Box::pin(commit(court, who, batch.clone(), unknown.clone()))
        })
    }

    fn renew(&self, request: RenewRequest) -> StoreFuture<'_, Renewed> {
        self.carry("renew", true, move |court, who| {
            let request = request.clone();
            Box::pin(async move { court.renew(&who, request).await })
        })
    }

    fn send(&self, id: MilestoneId, command: Command) -> StoreFuture<'_, Sent> {
        self.carry("send", true, move |court, who| {
            let (id, command) = (id.clone(), command.clone());
            Box::pin(async move { court.send(&who, id, command).await })
        })
    }

    fn get(
        &self,
        ids: Vec<MilestoneId>,
    ) -> StoreFuture<'_, Vec<Result<MilestoneRecord, Unreadable>>> {
        self.carry("get", false, move |court, _| {
            let ids = ids.clone();
            Box::pin(async move { court.get(ids).await })
        })
    }

    fn list(&self, filter: Filter, page: Page) -> StoreFuture<'_, Listed> {
        self.court.store().list(filter, page)
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, u64> {
        self.court.store().count(filter)
    }

    fn remove(&self, id: MilestoneId) -> StoreFuture<'_, bool> {
        self.court.store().remove(id)
    }

    fn changes(&self, wanted: Wanted) -> StoreFuture<'_, Option<Hints>> {
        if self.faults.hints {
            self.court.store().changes(wanted)
        } else {
            Box::pin(async { Ok(None) })
        }
    }

    fn heartbeat(&self, worker: WorkerInfo) -> StoreFuture<'_, ()> {
        self.court.store().heartbeat(worker)
    }

    fn retire(&self, worker: String) -> StoreFuture<'_, ()> {
        self.court.store().retire(worker)
    }

    fn workers(&self) -> StoreFuture<'_, Vec<WorkerInfo>> {
        self.court.store().workers()
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("who", &self.who)
            .finish_non_exhaustive()
    }
}
