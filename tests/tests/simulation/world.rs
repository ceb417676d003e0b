//! One seed from its beginning to its end.

use std::{
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use milestone_runtime::{
    Robot, Runtime,
    store::Store,
    testing::{MemoryStore, Process},
};
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    client,
    court::Court,
    ending,
    ledger::Ledger,
    log::Log,
    methods::{Home, methods},
    operator,
    reached::Reached,
    story::{Blow, GRACE, LEASE, Manner, POLL, SETTLE, Story},
    wire::{Weather, Wire},
};

/// How long a shutdown may take, whatever has befallen the database.
const STOPS_WITHIN: Duration = Duration::from_secs(40);

/// How long a process that has shut down is still there.
const EXITS_AFTER: Duration = Duration::from_millis(300);

const RESTARTS_AFTER: Duration = Duration::from_millis(400);

/// Everything of one seed.
pub(crate) struct World {
    pub(crate) story: Arc<Story>,
    pub(crate) log: Arc<Log>,
    pub(crate) court: Arc<Court>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) weather: Arc<Weather>,
    /// The workers that live; `None` while one is not there.
    workers: Mutex<Vec<Option<Worker>>>,
    /// How often each of them was started.
    starts: Vec<AtomicU32>,
    rng: Mutex<Rng>,
}

/// One process with a runtime.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) runtime: Runtime,
    home: Arc<Home>,
    work: Work,
    wire: Arc<Wire>,
}

/// How a process works.
#[derive(Clone)]
enum Work {
    Spawned(Robot),
    /// One pass after the other.
    Passes(AbortHandle),
    /// Until it is told to stop; told twice where nobody waits for the grace period.
    Until {
        stop: Arc<Notify>,
        ended: Arc<Notify>,
        twice: bool,
    },
}

/// What a seed has shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Of all that happened, with its times.
    pub(crate) hash: u64,
    pub(crate) lines: u64,
    /// How long it took, in milliseconds of its own time.
    pub(crate) millis: u64,
    pub(crate) bodies: usize,
    /// How often it came to what is rare.
    pub(crate) reached: Reached,
    /// What was wrong.
    pub(crate) wrong: Option<String>,
    /// The end of the log.
    pub(crate) tail: String,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        broken: impl FnOnce(Arc<MemoryStore>) -> Arc<dyn Store>,
    ) -> Arc<Self> {
        let story = Arc::new(Story::new(seed));
        let log = Arc::new(Log::new());
        let memory = Arc::new(MemoryStore::new());
        let carrying = broken(Arc::clone(&memory));
        let court = Arc::new(Court::new(Arc::clone(&log), memory, carrying));
        let ledger = Arc::new(Ledger::new(Arc::clone(&log), Arc::clone(&court)));
        Arc::new(Self {
            workers: Mutex::new(story.workers.iter().map(|_| None).collect()),
            starts: story.workers.iter().map(|_| AtomicU32::new(0)).collect(),
            rng: Mutex::new(Rng::with_seed(seed ^ 0x0077_1e00)),
            weather: Arc::new(Weather::new()),
            story,
            log,
            court,
            ledger,
        })
    }

    /// Plays the story, waits until all has settled, and looks at what is left.
    pub(crate) async fn play(self: &Arc<Self>) -> Shown {
        let mut tasks = Vec::new();
        for index in 0..self.story.workers.len() {
            let world = Arc::clone(self);
            tasks.push(tokio::spawn(async move {
                world.life(index).await;
                // Until the end of the seed.
                tokio::spawn(async move { world.wait(index, Duration::from_hours(1)).await });
            }));
        }
        if let Some((at, long)) = self.story.faults.outage {
            let world = Arc::clone(self);
            tasks.push(tokio::spawn(async move {
                sleep(at).await;
                world
                    .log
                    .note("WORLD", format_args!("an outage of {long:?}"));
                world.weather.outage(long);
            }));
        }
        for plan in 0..self.story.milestones.len() {
            let world = Arc::clone(self);
            tasks.push(tokio::spawn(
                async move { client::starts(&world, plan).await },
            ));
            let world = Arc::clone(self);
            tasks.push(tokio::spawn(
                async move { client::speaks(&world, plan).await },
            ));
        }
        sleep(self.story.chaos).await;
        self.log.note("WORLD", format_args!("calm"));
        self.weather.calm();
        for task in tasks {
            if let Err(error) = task.await {
                self.log
                    .wrong(format_args!("the simulation itself: {error}"));
            }
        }
        operator::settle(self).await;
        ending::check(self).await;
        Shown {
            reached: Reached::of(self),
            hash: self.log.hash(),
            lines: self.log.lines(),
            millis: self.log.now(),
            bodies: self.ledger.runs().len(),
            wrong: self.log.found(),
            tail: self.log.tail(),
        }
    }

    /// A random source of its own for whoever asks.
    pub(crate) fn rng(&self) -> Rng {
        self.rng
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fork()
    }

    /// What befalls one worker. At the end there is one that lives.
    async fn life(&self, index: usize) {
        let plan = &self.story.workers[index];
        self.begin(index).await;
        for (wait, blow) in &plan.blows {
            self.wait(index, *wait).await;
            if self.weather.is_calm() {
                return;
            }
            let Some(worker) = self.worker(index) else {
                return;
            };
            self.log.note(&worker.name, format_args!("{blow:?}"));
            match *blow {
                Blow::Freeze(long) => {
                    worker.home.process.freeze();
                    self.ledger.freeze(&worker.name);
                    sleep(long).await;
                    self.log.note(&worker.name, format_args!("thaws"));
                    worker.home.process.thaw();
                }
                Blow::Cut(long) => worker.wire.cut(long),
                Blow::Kill(long) => {
                    self.place(index, None);
                    worker.home.process.kill();
                    drop(worker);
                    sleep(long).await;
                    self.begin(index).await;
                }
                Blow::Shutdown(long) => {
                    self.place(index, None);
                    if timeout(STOPS_WITHIN, worker.shutdown()).await.is_err() {
                        self.log
                            .wrong(format_args!("{} does not shut down", worker.name));
                    }
                    self.ledger.shut_down(&worker.name);
                    self.log.note(&worker.name, format_args!("has shut down"));
                    sleep(EXITS_AFTER).await;
                    // As when its main function ends.
                    worker.home.process.kill();
                    drop(worker);
                    sleep(long).await;
                    self.begin(index).await;
                }
            }
        }
    }

    /// Waits; a process that was killed by what it ran is started again in the meantime.
    async fn wait(&self, index: usize, long: Duration) {
        let end = Instant::now() + long;
        loop {
            let worker = self.worker(index);
            let falls = async {
                match &worker {
                    Some(worker) => worker.home.fallen.notified().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = falls => {
                    self.place(index, None);
                    self.log.note("WORLD", format_args!("a body has killed worker {index}"));
                    sleep(RESTARTS_AFTER).await;
                    self.begin(index).await;
                }
                () = sleep_until(end) => return,
            }
        }
    }

    async fn begin(&self, index: usize) {
        let plan = &self.story.workers[index];
        let starts = self.starts[index].fetch_add(1, Ordering::Relaxed);
        let name = format!("w{index}.{starts}");
        let home = Arc::new(Home {
            name: name.clone(),
            process: Process::new(),
            fallen: Notify::new(),
        });
        let wire = Arc::new(self.wire(&name));
        let mut builder = Runtime::builder("memory:")
            .store(Arc::<Wire>::clone(&wire))
            .process(&home.process)
            .worker_name(&name)
            .actions(std::iter::empty::<String>())
            .concurrency(plan.places)
            .lease(LEASE)
            .poll(POLL)
            .grace(GRACE)
            .settle(SETTLE)
            .start_timeout(Duration::from_secs(3));
        for method in methods(&self.story, &self.ledger, &home, plan.all_methods) {
            builder = builder.register(method);
        }
        let runtime = match builder.build().await {
            Ok(runtime) => runtime,
            Err(error) => return self.log.wrong(format_args!("{name} cannot start: {error}")),
        };
        let work = work(&runtime, plan.manner);
        self.log.note(&name, format_args!("works"));
        let worker = Worker {
            name,
            runtime,
            home,
            work,
            wire,
        };
        self.place(index, Some(worker));
    }

    /// A new way to the database.
    pub(crate) fn wire(&self, who: &str) -> Wire {
        Wire::new(
            who,
            &self.court,
            &self.log,
            &self.weather,
            self.story.faults,
            self.rng(),
        )
    }

    fn place(&self, index: usize, worker: Option<Worker>) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)[index] = worker;
    }

    pub(crate) fn worker(&self, index: usize) -> Option<Worker> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)[index].clone()
    }

    /// The workers that are there now.
    pub(crate) fn workers(&self) -> Vec<Worker> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().flatten().cloned().collect()
    }
}

impl Worker {
    /// Ends in order.
    pub(crate) async fn shutdown(&self) {
        match &self.work {
            Work::Spawned(robot) => robot.shutdown().await,
            Work::Passes(passes) => {
                passes.abort();
                self.runtime.shutdown().await;
            }
            Work::Until { stop, ended, twice } => {
                stop.notify_one();
                if *twice {
                    sleep(GRACE / 4).await;
                    stop.notify_one();
                }
                ended.notified().await;
            }
        }
    }
}

/// Begins to work.
fn work(runtime: &Runtime, manner: Manner) -> Work {
    match manner {
        Manner::Spawns => Work::Spawned(runtime.spawn()),
        Manner::Passes => {
            let runtime = runtime.clone();
            // A process that is killed ends this, too.
            let passes = tokio::spawn(async move {
                while runtime.run_once().await.is_ok() {
                    sleep(POLL).await;
                }
            });
            Work::Passes(passes.abort_handle())
        }
        Manner::Until { twice } => {
            let (stop, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (runtime, told, over) = (runtime.clone(), Arc::clone(&stop), Arc::clone(&ended));
            tokio::spawn(async move {
                runtime.run_until(|| told.notified()).await;
                over.notify_one();
            });
            Work::Until { stop, ended, twice }
        }
    }
}
