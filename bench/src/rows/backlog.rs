//! Many milestones that wait for workers.

mod commands;
mod embedded;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};

use crate::{
    bench::{Bench, Scratch},
    row::{Row, Target},
    statistics::{float, median, rate},
    template::{self, MILESTONES},
    worker::{Answer, Job, Order, Process, ours::bare},
};

/// How many worker processes drain it, one figure for each.
const WORKERS: [usize; 4] = [1, 2, 4, 8];

/// How many milestones a worker has at once, and a command of the floor holds.
const BATCH: usize = 100;

/// Of which so many candidates are read for one that is taken, where there are several, as ours do.
const SPREAD: usize = 3;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let (rounds, backlog) = bench.pick((3, 5_000), (1, 2_000), (1, 20));
    let template = template::due(bench).await?;
    let mut drained: Vec<Drained> = WORKERS.into_iter().map(Drained::by).collect();
    for _ in 0..rounds {
        for drained in &mut drained {
            let (floor, missed) = raw(bench, &template, backlog, drained.workers).await?;
            drained.floor.push(rate(backlog, floor));
            drained.floor_missed += missed;
            let (ours, missed) = ours(bench, &template, backlog, drained.workers).await?;
            drained.ours.push(rate(backlog, ours));
            drained.missed += missed;
        }
        bench.clean().await?;
    }
    let mut rows: Vec<Row> = drained
        .iter()
        .map(|drained| drained.row(backlog, rounds))
        .collect();
    let commands = commands::note(bench, &template, backlog).await?;
    if let Some(alone) = rows.first_mut() {
        alone.notes.push(commands);
    }
    rows.push(scaling(&drained));
    rows.push(waste(&drained, backlog * rounds));
    rows.extend(embedded::run(bench).await?);
    Ok(rows)
}

/// A backlog, drained by so many workers.
struct Drained {
    workers: usize,
    /// Milestones a second, one figure a round.
    floor: Vec<f64>,
    ours: Vec<f64>,
    /// Claims that got nothing, in all rounds.
    floor_missed: u64,
    missed: u64,
}

impl Drained {
    const fn by(workers: usize) -> Self {
        Self {
            workers,
            floor: Vec::new(),
            ours: Vec::new(),
            floor_missed: 0,
            missed: 0,
        }
    }

    fn row(&self, backlog: usize, rounds: usize) -> Row {
        let workers = self.workers;
        let [floor, ours] = self.wasted(backlog * rounds);
        Row::against(
            format!("backlog of {backlog}, {workers} worker processes"),
            "milestones/s",
            median(&self.floor),
            median(&self.ours),
        )
        .target(Target::AtLeast(0.6))
        .note(format!(
            "one action each, {BATCH} places a worker; {ours:.1} % of the claims were wasted, of those of the floor {floor:.1} %; the floor is {workers} \
             processes of the raw driver, each of which takes up to {BATCH} of the documents that are due in one update by `_id`, and completes \
             them in another one; several read {SPREAD} for each that they take"
        ))
    }

    /// How many claims in a hundred got nothing, those of the floor and ours.
    fn wasted(&self, got: usize) -> [f64; 2] {
        [self.floor_missed, self.missed].map(|missed| share(missed, got))
    }
}

/// The wasted claims of the number of workers that wasted most.
fn waste(drained: &[Drained], got: usize) -> Row {
    let most = |side: usize| {
        let shares = drained.iter().map(|drained| drained.wasted(got)[side]);
        shares.fold(0.0, f64::max)
    };
    Row::alone("backlog: wasted claims, at the most", "%", most(1))
        .target(Target::Below(10.0))
        .note(format!(
            "milestones that were seen as due and that another worker got, of all that were seen; of the floor {:.1} %",
            most(0)
        ))
}

/// How many claims in a hundred got nothing.
fn share(missed: u64, got: usize) -> f64 {
    let missed = float(usize::try_from(missed).unwrap_or(usize::MAX));
    100.0 * missed / (missed + float(got))
}

/// The least that a step to more workers leaves of what fewer have made.
fn scaling(drained: &[Drained]) -> Row {
    let worst = |figures: fn(&Drained) -> &[f64]| {
        let steps = drained
            .windows(2)
            .map(|pair| median(figures(&pair[1])) / median(figures(&pair[0])));
        steps.fold(f64::INFINITY, f64::min)
    };
    let (floor, ours) = (worst(|of| &of.floor), worst(|of| &of.ours));
    Row::alone("backlog: the worst step to twice the workers", "×", ours)
        .target(Target::AtLeast(0.95))
        .note(format!(
            "throughput with twice the workers against that with half of them; that of the floor is {floor:.2}: server and workers share the cores"
        ))
}

/// A database with a backlog.
async fn filled(bench: &Bench, template: &Document, backlog: usize) -> Result<Scratch> {
    let scratch = bench.database();
    // It makes the collection and its indexes.
    drop(bare(&scratch.uri).client().build().await?);
    template::fill(&scratch.database.collection(MILESTONES), template, backlog).await?;
    Ok(scratch)
}

/// How long it took, and how many claims got nothing.
async fn raw(
    bench: &Bench,
    template: &Document,
    backlog: usize,
    workers: usize,
) -> Result<(Duration, u64)> {
    let scratch = filled(bench, template, backlog).await?;
    let job = Job::RawWorker {
        uri: scratch.uri.clone(),
        database: scratch.database.name().to_owned(),
        batch: BATCH,
        spread: if workers == 1 { 1 } else { SPREAD },
    };
    let mut processes = start(&job, workers).await?;
    let began = Instant::now();
    let told = tell(&mut processes, Order::Work).await?;
    let took = began.elapsed();
    let done: u64 = told.iter().map(|answer| answer.done).sum();
    ensure!(
        done == backlog as u64,
        "the raw driver completed {done} of {backlog}"
    );
    Ok((took, told.iter().map(|answer| answer.missed).sum()))
}

/// How long it took, and how many claims got nothing.
async fn ours(
    bench: &Bench,
    template: &Document,
    backlog: usize,
    workers: usize,
) -> Result<(Duration, u64)> {
    let scratch = filled(bench, template, backlog).await?;
    let job = Job::Worker {
        uri: scratch.uri.clone(),
        places: BATCH,
    };
    let mut processes = start(&job, workers).await?;
    let began = Instant::now();
    tell(&mut processes, Order::Work).await?;
    begun(&mut processes, backlog).await?;
    finish(&scratch).await?;
    let took = began.elapsed();
    let told = tell(&mut processes, Order::Tell).await?;
    Ok((took, told.iter().map(|answer| answer.missed).sum()))
}

/// Waits until nothing waits and nothing runs: what has ended has no `next`.
async fn finish(scratch: &Scratch) -> Result<()> {
    let milestones = scratch.database.collection::<Document>(MILESTONES);
    let unfinished = doc! { "next.queue": "default" };
    while milestones.find_one(unfinished.clone()).await?.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Starts several processes of one kind.
async fn start(job: &Job, count: usize) -> Result<Vec<Process>> {
    let mut processes = Vec::with_capacity(count);
    for _ in 0..count {
        processes.push(Process::start(job).await?);
    }
    Ok(processes)
}

/// Tells all of them the same, and waits for all of their answers.
async fn tell(processes: &mut [Process], order: Order) -> Result<Vec<Answer>> {
    for process in &mut *processes {
        process.tell(order).await?;
    }
    let mut answers = Vec::with_capacity(processes.len());
    for process in processes {
        answers.push(process.answer().await?);
    }
    Ok(answers)
}

/// Waits until so many actions have begun. The server is not asked, so that it is not kept from its work.
async fn begun(processes: &mut [Process], count: usize) -> Result<()> {
    loop {
        let told = tell(processes, Order::Tell).await?;
        if told.iter().map(|answer| answer.done).sum::<u64>() >= count as u64 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
