//! Breaks things, as the seed says.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;
use milestone_runtime::{Filter, Page, core::record::MilestoneId};
use milestone_tests::worker_process::WorkerProcess;

use crate::{
    recovery::Times,
    stage::{LEASE, Stage},
};

const WORKERS: usize = 5;
/// So that somebody is always at work.
const FROZEN: usize = 2;
const RESTART_EVERY: Duration = Duration::from_secs(10);

/// What was broken.
#[derive(Default)]
pub(crate) struct Broken {
    kills: usize,
    freezes: usize,
    restarts: usize,
    cuts: usize,
    connections: usize,
    recovered: Arc<Mutex<Vec<Duration>>>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recovered = self
            .recovered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        writeln!(
            f,
            "broken     {} workers killed, {} frozen for longer than their lease, {} server restarts, {} cuts of {} connections",
            self.kills, self.freezes, self.restarts, self.cuts, self.connections
        )?;
        write!(
            f,
            "in load    what a killed worker held was taken over after {} (lease 3 s, poll 0.2 s; while all else is broken, too)",
            Times::of(&recovered)
        )
    }
}

struct Crew {
    workers: Vec<WorkerProcess>,
    thaw_at: HashMap<usize, Instant>,
    count: usize,
}

impl Crew {
    fn add(&mut self, stage: &Stage) -> WorkerProcess {
        self.count += 1;
        stage.program.start(&format!("w{}", self.count))
    }
}

/// Breaks things for a while, and gives the workers that are left, all of them at work.
pub(crate) async fn run(
    stage: &Arc<Stage>,
    seed: u64,
    time: Duration,
    over: &AtomicBool,
) -> (Broken, Vec<WorkerProcess>) {
    let mut rng = Rng::with_seed(seed);
    let mut broken = Broken::default();
    let mut crew = Crew {
        workers: Vec::new(),
        thaw_at: HashMap::new(),
        count: 0,
    };
    for _ in 0..WORKERS {
        let worker = crew.add(stage);
        crew.workers.push(worker);
    }
    let began = Instant::now();
    let mut restarted = began;
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(rng.u64(200..1_800))).await;
        thaw(&mut crew, false);
        let victim = rng.usize(..WORKERS);
        match rng.u32(..10) {
            0..4 => kill(stage, &mut crew, victim, &mut broken),
            4..6 => freeze(&mut crew, victim, &mut rng, &mut broken),
            6..9 => {
                if let Some(proxy) = &stage.proxy {
                    broken.connections += proxy.cut();
                    broken.cuts += 1;
                }
            }
            _ if restarted.elapsed() > RESTART_EVERY => {
                if let Some(server) = &stage.server {
                    let mut server = server.lock().await;
                    server.kill();
                    tokio::time::sleep(Duration::from_millis(rng.u64(..4_000))).await;
                    server.start_again().await;
                    broken.restarts += 1;
                    restarted = Instant::now();
                }
            }
            _ => {}
        }
    }
    over.store(true, Ordering::SeqCst);
    thaw(&mut crew, true);
    (broken, crew.workers)
}

fn kill(stage: &Arc<Stage>, crew: &mut Crew, victim: usize, broken: &mut Broken) {
    crew.thaw_at.remove(&victim);
    let fresh = crew.add(stage);
    let mut dead = std::mem::replace(&mut crew.workers[victim], fresh);
    dead.kill();
    broken.kills += 1;
    let (stage, recovered) = (Arc::clone(stage), Arc::clone(&broken.recovered));
    let (name, killed) = (dead.name().to_owned(), Instant::now());
    tokio::spawn(async move {
        for (id, epoch) in held_by(&stage, &name).await {
            taken_over(&stage, id, epoch).await;
            let mut recovered = recovered.lock().unwrap_or_else(PoisonError::into_inner);
            recovered.push(killed.elapsed());
        }
    });
}

fn freeze(crew: &mut Crew, victim: usize, rng: &mut Rng, broken: &mut Broken) {
    if crew.thaw_at.len() < FROZEN && !crew.thaw_at.contains_key(&victim) {
        crew.workers[victim].freeze();
        let time = LEASE.mul_f64(1.2 + 1.5 * rng.f64());
        crew.thaw_at.insert(victim, Instant::now() + time);
        broken.freezes += 1;
    }
}

fn thaw(crew: &mut Crew, all: bool) {
    let now = Instant::now();
    let workers = &mut crew.workers;
    crew.thaw_at.retain(|index, at| {
        let frozen = !all && *at > now;
        if !frozen {
            workers[*index].thaw();
        }
        frozen
    });
}

/// The milestones whose lease is that worker's, each with its epoch. A worker's identity begins with its name, which nobody else has.
async fn held_by(stage: &Stage, name: &str) -> Vec<(MilestoneId, i64)> {
    let page = Page {
        limit: 1_000,
        ..Page::default()
    };
    let Ok(listed) = stage.client.list(Filter::unfinished(), page).await else {
        return Vec::new();
    };
    let owner = format!("{name}-");
    let held = listed.records.into_iter().filter(|record| {
        let lease = record.lease.as_ref();
        lease.is_some_and(|lease| lease.owner.starts_with(&owner))
    });
    held.map(|record| (record.id, record.epoch)).collect()
}

async fn taken_over(stage: &Stage, id: MilestoneId, epoch: i64) {
    loop {
        match stage.client.get(id.clone()).await {
            Ok(Some(record)) if record.epoch == epoch && !record.state.is_terminal() => {}
            Ok(_) => return,
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
