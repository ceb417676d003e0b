//! One short milestone in an idle process.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use anyhow::Result;
use milestone_runtime::Runtime;
use tokio::task::spawn_blocking;

use crate::{
    bench::Bench,
    floor::{Embedded, Raw, Rows, Template},
    graphs::{Payload, chain_of_two},
    row::{Row, Target},
    statistics::{median, ms, percentile},
};

/// How many are run before it is measured.
const WARM_UP: usize = 20;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let chain = async |runtime: &Runtime| chain_of_two(runtime, Payload::new()).await;
    let template = Template::record(bench, 64, 2, [], chain).await?;
    Ok(vec![
        on_mongodb(bench, &template).await?,
        on_sqlite(bench, &template).await?,
    ])
}

async fn on_mongodb(bench: &Bench, template: &Template) -> Result<Row> {
    let raw = Raw::open(bench).await?;
    let runtime = Runtime::builder(bench.database().uri).build().await?;
    runtime.spawn();
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP + bench.pick(500, 200, 5) {
        let writes = template.writes()?;
        let began = Instant::now();
        raw.one_by_one(&writes).await?;
        floors.push(ms(began.elapsed()));
        let payload = Payload::new();
        let began = Instant::now();
        chain_of_two(&runtime, payload).await?;
        ours.push(ms(began.elapsed()));
    }
    runtime.shutdown().await;
    let row = row(
        "latency of a chain of 2",
        &floors[WARM_UP..],
        &ours[WARM_UP..],
    );
    Ok(row.target(Target::AtMost(1.3)).note(
        "from start to outcome, by turns with the floor: an insert and two updates by the raw driver, one behind the other",
    ))
}

async fn on_sqlite(bench: &Bench, template: &Template) -> Result<Row> {
    let states = Raw::open(bench).await?.states(&template.writes()?).await?;
    let embedded = Arc::new(Mutex::new(Embedded::open(&bench.file()).await?));
    let uri = format!("sqlite:{}", bench.file().display());
    let runtime = Runtime::builder(uri).build().await?;
    runtime.spawn();
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP + bench.pick(500, 200, 5) {
        let rows = Rows::like(&states)?;
        let embedded = Arc::clone(&embedded);
        let took = spawn_blocking(move || {
            let mut embedded = embedded.lock().unwrap_or_else(PoisonError::into_inner);
            let began = Instant::now();
            embedded.one_by_one(&rows)?;
            anyhow::Ok(began.elapsed())
        });
        floors.push(ms(took.await??));
        let payload = Payload::new();
        let began = Instant::now();
        chain_of_two(&runtime, payload).await?;
        ours.push(ms(began.elapsed()));
    }
    runtime.shutdown().await;
    let row = row(
        "latency of a chain of 2, embedded",
        &floors[WARM_UP..],
        &ours[WARM_UP..],
    );
    Ok(row.note("the floor is three transactions of one row, on one thread"))
}

fn row(name: &str, floors: &[f64], ours: &[f64]) -> Row {
    Row::against(name, "ms", median(floors), median(ours)).note(format!(
        "medians of {}; 99 of 100 are below {:.2} ms, of the floor below {:.2} ms",
        ours.len(),
        percentile(ours, 99),
        percentile(floors, 99)
    ))
}
