//! What seeds have found, each kind by itself: the calls that must be late for it are late.

use std::{sync::Arc, time::Duration};

use bson::{DateTime, Document};
use milestone_runtime::{
    Method, Runtime, Start,
    action::{ActionError, Options, RetryPolicy},
    core::record::{AttemptKind, Status},
    dynamic::Action,
    store::{ClaimRequest, Share},
    testing::{MemoryStore, Process},
};
use tokio::time::{sleep, timeout};

use super::{
    court::Court,
    ledger::{End, Ledger},
    log::Log,
    story::{Faults, LEASE},
    wire::{Fate, Weather, Wire},
};

const LONG: Duration = LEASE.saturating_mul(3);

struct Bench {
    log: Arc<Log>,
    court: Arc<Court>,
    ledger: Arc<Ledger>,
    weather: Arc<Weather>,
}

impl Bench {
    fn new() -> Self {
        let log = Arc::new(Log::new());
        let memory = Arc::new(MemoryStore::new());
        let court = Court::new(
            Arc::clone(&log),
            Arc::clone(&memory),
            Arc::<MemoryStore>::clone(&memory),
        );
        let court = Arc::new(court);
        Self {
            ledger: Arc::new(Ledger::new(Arc::clone(&log), Arc::clone(&court))),
            weather: Arc::new(Weather::new()),
            log,
            court,
        }
    }

    /// A worker, and its way to the database.
    async fn worker(&self, name: &str) -> (Runtime, Arc<Wire>) {
        let wire = Arc::new(Wire::new(
            name,
            &self.court,
            &self.log,
            &self.weather,
            Faults::default(),
            fastrand::Rng::with_seed(1),
        ));
        let runtime = Runtime::builder("memory:")
            .store(Arc::<Wire>::clone(&wire))
            .process(&Process::new())
            .worker_name(name)
            .actions(std::iter::empty::<String>())
            .lease(LEASE)
            .poll(Duration::from_millis(50))
            .register(self.long(name))
            .register(self.fails_once(name))
            .register(self.again(name))
            .build()
            .await
            .expect("a runtime");
        runtime.spawn();
        // From now on it may take what others have left.
        sleep(LEASE * 2).await;
        (runtime, wire)
    }

    /// A plain action that takes three leases.
    fn long(&self, process: &str) -> Method {
        let (ledger, process) = (Arc::clone(&self.ledger), process.to_owned());
        Method::new("long", move |call| {
            let entry = ledger.begin(&process, call.context());
            async move {
                sleep(LONG).await;
                entry.effect(false);
                entry.end(End::Ok);
                Ok::<_, ActionError>("done")
            }
        })
    }

    /// An action that takes as long, and may run again.
    fn again(&self, process: &str) -> Method {
        let (ledger, process) = (Arc::clone(&self.ledger), process.to_owned());
        Method::new("again", move |call| {
            let entry = ledger.begin(&process, call.context());
            async move {
                sleep(LONG).await;
                entry.end(End::Ok);
                Ok::<_, ActionError>("done")
            }
        })
        .options(Options::idempotent())
    }

    /// An action that fails once, and is handed back until it is tried again.
    fn fails_once(&self, process: &str) -> Method {
        let (ledger, process) = (Arc::clone(&self.ledger), process.to_owned());
        let policy = RetryPolicy::new().base(Duration::from_millis(40));
        Method::new("fails-once", move |call| {
            let entry = ledger.begin(&process, call.context());
            async move {
                if call.context().attempt() == 1 {
                    entry.end(End::Err);
                    return Err(ActionError::new("not yet"));
                }
                entry.end(End::Ok);
                Ok("done")
            }
        })
        .options(Options::idempotent().retry(policy))
    }

    /// It ends complete, nothing was taken for abandoned, and nothing was wrong on the way.
    async fn check(&self, start: Start<Document>, attempts: i64) {
        let ended = async { start.await.expect("it is stored").ended().await };
        let Ok(record) = timeout(LEASE * 30, ended).await else {
            panic!("it does not end\n{}", self.log.tail());
        };
        let record = record.expect("it can be read");
        let mut ended = record.report.iter();
        let abandoned = ended.any(|attempt| attempt.kind == Some(AttemptKind::Abandoned));
        assert_eq!(
            (record.state, record.actions[0].attempts, abandoned),
            (Status::Completed, attempts, false),
            "{}",
            self.log.tail()
        );
        assert_eq!(self.log.found(), None, "{}", self.log.tail());
    }
}

fn late(there: Duration, back: Duration) -> Fate {
    Fate {
        there,
        back,
        ..Fate::default()
    }
}

/// The reply to a hand-back comes when the same worker has taken the milestone again, and is not the reply to what it has sent since.
#[tokio::test(start_paused = true)]
async fn the_reply_to_a_hand_back_comes_late() {
    let bench = Bench::new();
    let (runtime, wire) = bench.worker("w").await;
    wire.next("commit", late(Duration::ZERO, LEASE / 4));
    wire.next("commit", late(LEASE / 2, Duration::ZERO));
    let start = runtime.start("Late", Action::new("fails-once"), ()).id("m");
    bench.check(start, 2).await;
}

/// The first call that gets through after an outage is a claim: it takes nothing from a worker that is about to renew.
#[tokio::test(start_paused = true)]
async fn a_claim_is_the_first_to_find_the_database_back() {
    let bench = Bench::new();
    let (owner, wire) = bench.worker("owner").await;
    let (_other, _) = bench.worker("other").await;
    let start = owner.start("Late", Action::new("long"), ()).id("m");
    start.await.expect("it is stored");
    bench.weather.outage(LEASE * 2);
    wire.cut(LEASE * 2 + LEASE / 4);
    let again = owner.start("Late", Action::new("long"), ()).id("m");
    bench.check(again, 1).await;
}

/// A renewal takes longer than the lease: the worker does not take over from itself.
#[tokio::test(start_paused = true)]
async fn a_renewal_is_on_its_way_for_two_leases() {
    let bench = Bench::new();
    let (runtime, wire) = bench.worker("w").await;
    wire.next("renew", late(LEASE * 2, Duration::ZERO));
    let start = runtime.start("Late", Action::new("long"), ()).id("m");
    bench.check(start, 1).await;
}

/// A new milestone is stored with its first attempt begun, and the reply comes after its lease has ended: nobody takes that attempt for
/// abandoned, since it has not begun.
#[tokio::test(start_paused = true)]
async fn the_reply_to_a_birth_comes_late() {
    let bench = Bench::new();
    let (runtime, wire) = bench.worker("w").await;
    wire.next("insert", late(Duration::ZERO, LEASE * 2));
    let start = runtime.start("Late", Action::new("long"), ()).id("m");
    bench.check(start, 1).await;
}

/// An attempt ends while its worker is cut off and another one has taken over: the result was to be stored when the loss became known, and
/// is told to the milestone, which nobody else can help.
#[tokio::test(start_paused = true)]
async fn a_result_was_to_be_stored_when_the_lease_was_lost() {
    let bench = Bench::new();
    let (owner, wire) = bench.worker("owner").await;
    let (other, _) = bench.worker("other").await;
    let start = owner.start("Late", Action::new("long"), ()).id("m");
    let id = start.await.expect("it is stored").id().clone();
    wire.cut(LONG + LEASE / 2);
    let handle = other.handle(id);
    let Ok(record) = timeout(LEASE * 10, handle.ended()).await else {
        panic!("it does not end\n{}", bench.log.tail());
    };
    let record = record.expect("it can be read");
    assert_eq!(
        (
            record.state,
            record.actions[0].attempts,
            &record.actions[0].output
        ),
        (Status::Completed, 1, &Some("done".into())),
        "{}",
        bench.log.tail()
    );
    let answer = &record.answers[0];
    assert_eq!((&*answer.by, answer.done), (owner.worker(), true));
}

/// A milestone that has lost two workers runs alone when a third one loses its lease: its body goes on for a while, and nothing begins
/// beside it.
#[tokio::test(start_paused = true)]
async fn the_body_of_a_suspect_outlives_its_lease() {
    let bench = Bench::new();
    let (first, _) = bench.worker("first").await;
    let start = first.start("Late", Action::new("again"), ()).id("m");
    let id = start.await.expect("it is stored").id().clone();
    drop(first);
    let (second, _) = bench.worker("second").await;
    drop(second);
    let (third, wire) = bench.worker("third").await;
    let record = bench.court.record(&id).expect("it is stored");
    assert_eq!((record.losses, record.actions[0].attempts), (2, 3));
    let start = third.start("Late", Action::new("fails-once"), ()).id("n");
    let other = start.await.expect("it is stored");
    wire.cut(LEASE * 3 / 2);
    sleep(LEASE * 5 / 4).await;
    let now = bench.court.time();
    let taken = ClaimRequest {
        owner: "fourth".to_owned(),
        token: "fourth".to_owned(),
        limit: 1,
        now,
        expired_before: Some(now),
        until: DateTime::from_millis(now.timestamp_millis() + 60_000),
        queues: vec!["default".to_owned()],
        methods: Vec::new(),
        except: Vec::new(),
        share: Share::all(),
        begins: None,
    };
    let taken = bench.court.claim("fourth", taken).await.expect("a claim");
    assert_eq!(taken.records[0].id, id);
    let Ok(record) = timeout(LEASE * 10, other.ended()).await else {
        panic!("it does not end\n{}", bench.log.tail());
    };
    assert_eq!(record.expect("it can be read").state, Status::Completed);
    assert_eq!(bench.log.found(), None, "{}", bench.log.tail());
}
