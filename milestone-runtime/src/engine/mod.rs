//! The engine: one task that holds milestones, plans what happens to them, and keeps commits, claims and renewals on their way. It
//! decides by the state machine and talks to the store by tasks of its own, so it never waits.

mod attempts;
pub(crate) mod body;
mod claims;
pub(crate) mod clock;
mod commits;
pub(crate) mod ended;
mod held;
pub(crate) mod hints;
pub(crate) mod hold;
mod inserts;
mod late;
mod lifecycle;
pub(crate) mod message;
pub(crate) mod pass;
mod places;
mod renewals;
mod shares;
mod suspects;
mod watchers;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bson::DateTime;
use futures_util::FutureExt as _;
use milestone_core::{
    machine::{Event, Task, is_overdue},
    record::{MilestoneId, Status},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::Instant,
};

use self::{
    clock::Clock,
    held::Held,
    message::{Inserting, Message},
    pass::Pass,
    places::Places,
    shares::Shares,
    suspects::Suspects,
    watchers::Watchers,
    wire::Wire,
};
use crate::{
    action::States,
    config::Config,
    executor::Tasks,
    metrics::Counts,
    mongo::{cleaner::Traces, once::Known, tx::Transactions},
    registry::Registry,
    store::{Store, Wanted},
};

/// What the engine shares with the runtime's handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) worker: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    pub(crate) states: Arc<States>,
    pub(crate) clock: Clock,
    /// Where the engine runs, and its calls of the store.
    pub(crate) io: Tasks,
    /// Where actions run.
    pub(crate) application: Tasks,
    pub(crate) counts: Counts,
    /// Which hints of the database are of use.
    pub(crate) wanted: watch::Sender<Wanted>,
    /// Where the toolkit tells what it leaves behind in the database.
    pub(crate) traces: Traces,
    /// The collections in which documents were written once.
    pub(crate) once: Known,
    /// What transactional actions need.
    pub(crate) transactions: Transactions,
    /// Whether it was shut down, and tells no more that it lives.
    pub(crate) retired: AtomicBool,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each says whether one thing is on its way; they do not exclude each other"
)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    tell: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// In boxes: a tree moves what it holds about.
    held: BTreeMap<MilestoneId, Box<Held>>,
    places: Places,
    /// Held milestones with something to run and no place for it, in the order in which they get one.
    queue: VecDeque<MilestoneId>,
    /// Held milestones with something to run whose method has as many attempts as it may have at once.
    turns: VecDeque<MilestoneId>,
    suspects: Suspects,
    /// Held milestones with something to commit.
    dirty: VecDeque<MilestoneId>,
    commits: Wire,
    inserts: Vec<Inserting>,
    inserts_on_wire: Wire,
    /// New milestones that were sent with a lease of this worker, until it is known what became of them.
    births: BTreeSet<MilestoneId>,
    serving: bool,
    stopping: Option<Stopping>,
    passes: VecDeque<Pass>,
    claim_in_flight: bool,
    /// How many milestones were started here since the last claim.
    started: usize,
    /// Whether one was ever started here.
    starts: bool,
    /// When to look for work next.
    poll_at: Instant,
    idle_wait: Duration,
    /// Times at which work that was handed back becomes due.
    wakes: BTreeSet<Instant>,
    last_claim: Instant,
    /// The methods that the last look has left out, since as many attempts of them ran as may at once.
    left_out: Vec<String>,
    /// Whether something may be due since then.
    hinted: bool,
    /// How many were told to be due since the last look.
    expected: usize,
    /// The shortest time between two looks that hints cause.
    hint_wait: Duration,
    shares: Shares,
    /// From then on, expired leases of others may be taken.
    takes_expired_from: Option<Instant>,
    /// Since the last call of the store that failed, until one succeeds.
    outage: bool,
    /// When the last call of the store succeeded.
    answered: Instant,
    /// When the log was last told that one failed.
    complained: Option<Instant>,
    failures: u32,
    renew_at: Instant,
    renewing: bool,
    time_at: Instant,
    watchers: Watchers,
    /// Milestones that could not be read, and were named in the log.
    unreadable: BTreeSet<MilestoneId>,
    /// Those of them that are left out of claims, until they are looked at again.
    except: BTreeSet<MilestoneId>,
    closed: bool,
}

/// A shutdown that goes on.
struct Stopping {
    deadline: Instant,
    /// Whether the grace period is over and what ran has been cut off.
    cut: bool,
    replies: Vec<oneshot::Sender<()>>,
}

impl Engine {
    pub(crate) fn new(
        shared: Arc<Shared>,
        tell: mpsc::UnboundedSender<Message>,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Self {
        let now = Instant::now();
        // Nothing is known to be due yet.
        let idle_wait = shared.config.poll / 16;
        // Leases of others that look expired after a start may only look so after an outage: their owners get one lease to renew. A store
        // that knows the dead hands out what was theirs all the same.
        Self {
            places: Places::new(shared.config.concurrency),
            takes_expired_from: Some(now + shared.config.lease),
            renew_at: now + shared.config.lease / 3,
            time_at: now + TIME_EVERY,
            shared,
            tell,
            inbox,
            held: BTreeMap::new(),
            queue: VecDeque::new(),
            turns: VecDeque::new(),
            suspects: Suspects::default(),
            dirty: VecDeque::new(),
            commits: Wire::default(),
            inserts: Vec::new(),
            inserts_on_wire: Wire::default(),
            births: BTreeSet::new(),
            serving: false,
            stopping: None,
            passes: VecDeque::new(),
            claim_in_flight: false,
            started: 0,
            starts: false,
            poll_at: now,
            idle_wait,
            wakes: BTreeSet::new(),
            last_claim: now,
            left_out: Vec::new(),
            hinted: false,
            expected: 0,
            hint_wait: Duration::ZERO,
            shares: Shares::new(),
            outage: false,
            answered: now,
            complained: None,
            failures: 0,
            renewing: false,
            watchers: Watchers::new(now),
            unreadable: BTreeSet::new(),
            except: BTreeSet::new(),
            closed: false,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let wake = self.next_wake();
            let message = tokio::select! {
                biased;
                message = self.inbox.recv() => message,
                () = tokio::time::sleep_until(wake) => None,
            };
            if let Some(message) = message {
                self.handle(message);
            }
            // Everything that has come in the meantime is planned before anything is sent, so that it goes in one command.
            for _ in 0..MESSAGES_AT_ONCE {
                match self.inbox.try_recv() {
                    Ok(message) => self.handle(message),
                    Err(_) => break,
                }
            }
            if self.closed {
                return self.close();
            }
            self.pump();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Start { record, reply } => self.start(*record, reply),
            Message::Watch { id, reply } => self.watch(&id, reply),
            Message::RunOnce { reply } => self.begin_pass(reply),
            Message::Serve => self.serve(),
            Message::Stop { grace, reply } => self.stop(grace, reply),
            Message::Ended { serial, result } => self.ended(serial, result),
            Message::TimedOut { serial } => self.timed_out(serial),
            Message::Overdue { serial } => self.overdue(serial),
            Message::Abort { serial } => self.places.abort(serial),
            Message::Inserted { batch, result } => self.inserted(batch, result),
            Message::InsertAgain { batch } => self.inserts.extend(batch),
            Message::Claimed {
                for_pass,
                by_hint,
                result,
            } => self.claimed(for_pass, by_hint, result),
            Message::Workers(result) => self.others(result),
            Message::Committed { sent, result } => self.committed(sent, result),
            Message::CommitAgain { sent } => self.commit_again(&sent),
            Message::Renewed {
                request,
                round_trip,
                result,
            } => self.renewed(&request, round_trip, result),
            Message::Fetched {
                id,
                token,
                anew,
                result,
            } => self.fetched(&id, &token, anew, result),
            Message::Watched { ids, result } => self.watched(&ids, result),
            Message::Time { round_trip, now } => self.set_time(now, round_trip),
            Message::Wake { id } => self.plan(&id),
            Message::Registered => self.registered(),
            Message::Mail { id } => self.mail(&id),
            Message::Hint(hint) => self.hinted(&hint),
            Message::Close => self.closed = true,
        }
    }

    /// Sends what there is to send.
    fn pump(&mut self) {
        self.settle_suspects();
        self.fill_places();
        self.send_inserts();
        self.send_commits();
        self.send_renewal();
        self.send_claim();
        self.send_watch();
        self.want_hints();
        self.read_time();
        self.finish_passes();
        self.finish_stop();
    }

    fn next_wake(&self) -> Instant {
        let mut wake = self.time_at;
        if !self.held.is_empty() && !self.renewing {
            wake = wake.min(self.renew_at);
        }
        if self.wants_claim() && !self.claim_in_flight && self.free_for_claims() > 0 {
            wake = wake.min(self.claim_at());
        }
        if let Some(at) = self.watchers.next_look() {
            wake = wake.min(at);
        }
        if let Some(at) = self.suspects.wake() {
            wake = wake.min(at);
        }
        if let Some(stopping) = &self.stopping {
            let linger = if stopping.cut {
                lifecycle::LINGER
            } else {
                Duration::ZERO
            };
            wake = wake.min(stopping.deadline + linger);
        }
        wake
    }

    /// Carries out an event on a held milestone, and what follows from it.
    fn step(&mut self, id: &MilestoneId, event: Event) {
        let now = self.now();
        let limits = self.shared.config.limits;
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        let before = held.record.state;
        if let Err(error) = held.plan(event, now, &limits) {
            // The document says otherwise: somebody changed it, or the attempt was ended by another way.
            tracing::debug!(milestone = %id, %error, "an event came too late");
        }
        let (kind, after) = (&held.record.kind, held.record.state);
        if after != before
            && matches!(
                after,
                Status::Failed | Status::Undoing | Status::Undone | Status::InDoubt
            )
        {
            tracing::warn!(milestone = %id, kind, "a milestone that was {before} is {after}");
        }
        self.plan(id);
    }

    /// Begins what can begin, hands back what cannot go on here, and puts the milestone in line for its commit.
    fn plan(&mut self, id: &MilestoneId) {
        let now = self.now();
        self.mind_deadline(id, now);
        self.give_up_told_off(id);
        let begins = self.choose(id, now);
        let limits = self.shared.config.limits;
        let worker = self.shared.worker.clone();
        let stopping = !self.begins();
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if !begins.is_empty() {
            let event = Event::Begin {
                tasks: begins.clone(),
                worker,
            };
            match held.plan(event, now, &limits) {
                Ok(()) => {
                    for task in begins {
                        let number = attempt_number(held, task);
                        held.pending.begins.push((task, number));
                        self.places.reserve(method_of(held, task));
                    }
                }
                Err(error) => {
                    tracing::warn!(milestone = %id, %error, "an action that is due cannot begin");
                }
            }
        }
        let held_here = held.queued && !stopping;
        if !held.is_closing()
            && held.is_idle()
            && !held_here
            && held.replay.is_empty()
            && (stopping || !self.places.has_disowned(id))
            && let Err(error) = held.plan(Event::HandBack, now, &limits)
        {
            tracing::warn!(milestone = %id, %error, "a milestone cannot be handed back");
        }
        let unwinding = held.record.unwind.is_some();
        if !held.pending.patch.is_empty() && !held.dirty {
            held.dirty = true;
            self.dirty.push_back(id.clone());
        }
        if unwinding {
            self.stop_siblings(id);
        }
        self.wake_held(id, now);
    }

    /// A milestone whose time is over begins nothing more.
    fn mind_deadline(&mut self, id: &MilestoneId, now: DateTime) {
        let limits = self.shared.config.limits;
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if held.is_closing() || !held.replay.is_empty() || !is_overdue(&held.record, now) {
            return;
        }
        tracing::warn!(milestone = %id, kind = held.record.kind, "the deadline of a milestone has passed");
        if let Err(error) = held.plan(Event::Overdue, now, &limits) {
            tracing::warn!(milestone = %id, %error, "a deadline cannot be heeded");
        }
    }

    fn now(&self) -> DateTime {
        self.shared.clock.now()
    }

    /// Runs a call of the store, and tells the engine what came of it.
    fn call<T, F>(&self, call: F, done: impl FnOnce(T) -> Message + Send + 'static)
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let tell = self.tell.clone();
        self.shared.io.spawn(async move {
            let Ok(result) = AssertUnwindSafe(call).catch_unwind().await else {
                tracing::error!("a call of the store has panicked, which is a bug: this runtime is closed, and others take over when its leases end");
                let _ = tell.send(Message::Close);
                return;
            };
            // Without the engine nobody wants to know.
            let _ = tell.send(done(result));
        });
    }

    /// Tells the engine something later.
    fn later(&self, wait: Duration, message: Message) -> AbortHandle {
        let tell = self.tell.clone();
        let timer = self.shared.io.spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = tell.send(message);
        });
        timer.abort_handle()
    }

    /// A call of the store has failed: until one succeeds, the database is taken to be away.
    fn failed_call(&mut self, what: &str, error: &dyn std::fmt::Display) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.outage = true;
        // A database that comes and goes is not to fill the log.
        if self
            .complained
            .is_none_or(|at| at.elapsed() > COMPLAIN_EVERY)
        {
            self.complained = Some(Instant::now());
            tracing::warn!(worker = %self.shared.worker, %error, "the database does not answer ({what}); trying again until it does");
        }
        let wait = 0.05 * f64::from(2_u32.saturating_pow(self.failures.min(8)));
        // Within a lease there is time for several tries.
        let wait = wait
            .min(2.0)
            .min(self.shared.config.lease.as_secs_f64() / 10.0);
        Duration::from_secs_f64(wait * (0.5 + fastrand::f64() / 2.0))
    }

    /// A call of the store has succeeded. After an outage in which leases may have run out the leases of others look expired, though their
    /// owners live: they get one lease to renew them. A shorter one leaves them time enough, and must not put that off again and again.
    fn successful_call(&mut self) {
        let away = self.answered.elapsed();
        self.answered = Instant::now();
        self.failures = 0;
        if !self.outage {
            return;
        }
        self.outage = false;
        let lease = self.shared.config.lease;
        if away > lease / 2 {
            tracing::info!(worker = %self.shared.worker, "the database answers again");
            self.complained = None;
            self.takes_expired_from = Some(Instant::now() + lease);
            self.renew_at = Instant::now();
        }
        self.poll_at = self.poll_at.min(Instant::now() + Duration::from_millis(50));
    }

    /// The server has told its time. If it has jumped ahead, leases look expired whose owners live: they get one lease to renew them.
    pub(crate) fn set_time(&mut self, now: DateTime, round_trip: Duration) {
        let lease = self.shared.config.lease;
        let ahead = now
            .timestamp_millis()
            .saturating_sub(self.now().timestamp_millis());
        if u128::try_from(ahead).is_ok_and(|ahead| ahead > (lease / 4).as_millis()) {
            self.takes_expired_from = Some(Instant::now() + lease);
        }
        self.shared.clock.set(now, round_trip);
    }

    /// Bodies are dropped before they begin: this worker can run nothing any more, and must not hold what others can run.
    fn executor_is_gone(&mut self) {
        if self.serving {
            tracing::error!(worker = %self.shared.worker, "the executor on which this runtime was built is gone; it runs nothing any more");
        }
        self.serving = false;
        self.hand_back_idle();
    }

    fn read_time(&mut self) {
        if Instant::now() < self.time_at {
            return;
        }
        self.time_at = Instant::now() + TIME_EVERY;
        // Somebody may have mended them.
        self.except.clear();
        let store = Arc::clone(&self.shared.store);
        let tell = self.tell.clone();
        self.shared.io.spawn(async move {
            let asked = Instant::now();
            if let Ok(now) = store.now().await {
                let _ = tell.send(Message::Time {
                    round_trip: asked.elapsed(),
                    now,
                });
            }
        });
    }
}

/// How often the server's time is read where no renewal does.
const TIME_EVERY: Duration = Duration::from_secs(30);

/// How often the log is told that the database does not answer.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// How many messages are handled before anything is sent.
const MESSAGES_AT_ONCE: usize = 4096;

fn method_of(held: &Held, task: Task) -> &str {
    let tries = held.record.actions[task.action].tries(task.phase);
    tries.and_then(|tries| tries.method).unwrap_or_default()
}

fn attempt_number(held: &Held, task: Task) -> i64 {
    let action = &held.record.actions[task.action];
    action
        .running_in(task.phase)
        .map_or(0, |running| running.number)
}
