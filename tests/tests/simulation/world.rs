//! One seed from its beginning to its end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use milestone_runtime::{
    Robot, Runtime,
    store::Store,
    testing::{MemoryStore, Process},
};
use tokio::time::sleep;

use super::{
    client,
    court::Court,
    ending,
    ledger::Ledger,
    log::Log,
    methods::methods,
    operator,
    story::{Blow, GRACE, LEASE, POLL, SETTLE, Story, WorkerPlan},
    wire::{Weather, Wire},
};

/// Everything of one seed.
pub(crate) struct World {
    pub(crate) story: Arc<Story>,
    pub(crate) log: Arc<Log>,
    pub(crate) court: Arc<Court>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) weather: Arc<Weather>,
    /// The workers that live; `None` while one is not there.
    workers: Mutex<Vec<Option<Worker>>>,
    rng: Mutex<Rng>,
}

/// One process with a runtime.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) runtime: Runtime,
    robot: Option<Robot>,
    wire: Arc<Wire>,
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
            tasks.push(tokio::spawn(async move { world.life(index).await }));
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
        let mut starts = 0;
        self.begin(index, plan, starts).await;
        for (wait, blow) in &plan.blows {
            sleep(*wait).await;
            if self.weather.is_calm() {
                return;
            }
            let Some(worker) = self.worker(index) else {
                return;
            };
            self.log.note(&worker.name, format_args!("{blow:?}"));
            match *blow {
                Blow::Freeze(long) => {
                    worker.process.freeze();
                    self.ledger.freeze(&worker.name);
                    sleep(long).await;
                    self.log.note(&worker.name, format_args!("thaws"));
                    worker.process.thaw();
                }
                Blow::Cut(long) => worker.wire.cut(long),
                Blow::Kill(long) => {
                    self.place(index, None);
                    worker.process.kill();
                    drop(worker);
                    sleep(long).await;
                    starts += 1;
                    self.begin(index, plan, starts).await;
                }
                Blow::Shutdown(long) => {
                    self.place(index, None);
                    worker.shutdown().await;
                    self.log.note(&worker.name, format_args!("has shut down"));
                    // As when its main function ends.
                    worker.process.kill();
                    drop(worker);
                    sleep(long).await;
                    starts += 1;
                    self.begin(index, plan, starts).await;
                }
            }
        }
    }

    async fn begin(&self, index: usize, plan: &WorkerPlan, starts: u32) {
        let name = format!("w{index}.{starts}");
        let process = Process::new();
        let wire = Arc::new(self.wire(&name));
        let mut builder = Runtime::builder("memory:")
            .store(Arc::<Wire>::clone(&wire))
            .process(&process)
            .worker_name(&name)
            .actions(std::iter::empty::<String>())
            .concurrency(plan.places)
            .lease(LEASE)
            .poll(POLL)
            .grace(GRACE)
            .settle(SETTLE)
            .start_timeout(Duration::from_secs(3));
        for method in methods(&self.story, &self.ledger, &name, plan.all_methods) {
            builder = builder.register(method);
        }
        let runtime = match builder.build().await {
            Ok(runtime) => runtime,
            Err(error) => return self.log.wrong(format_args!("{name} cannot start: {error}")),
        };
        let robot = if plan.passes {
            let runtime = runtime.clone();
            // A process that is killed ends this, too.
            tokio::spawn(async move {
                while runtime.run_once().await.is_ok() {
                    sleep(POLL).await;
                }
            });
            None
        } else {
            Some(runtime.spawn())
        };
        self.log.note(&name, format_args!("works"));
        let worker = Worker {
            name,
            process,
            runtime,
            robot,
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
        match &self.robot {
            Some(robot) => robot.shutdown().await,
            None => self.runtime.shutdown().await,
        }
    }
}
