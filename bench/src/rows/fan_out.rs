//! One wide milestone: many actions side by side, and one that takes what they gave.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bson::Document;
use milestone_runtime::{
    Method, Runtime,
    action::{ActionError, Call, Options},
    dynamic::Action,
};

use crate::{
    bench::Bench,
    conditions::BATCH,
    floor::{Raw, Template, Writes},
    graphs::Payload,
    row::{Row, Target},
    statistics::{median, rate},
};

/// Bytes of each output.
const OUTPUT: usize = 1024;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let width = bench.pick(500, 500, 20);
    // With one place, each action is one write.
    let template = Template::record(
        bench,
        1,
        width + 1,
        methods(width),
        async |runtime: &Runtime| fan_out(runtime, width).await,
    )
    .await?;
    let merged = template.merged(BATCH)?;
    let (mut single, mut together, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.pick(3, 2, 1) {
        let raw = Raw::open(bench).await?;
        single.push(rate(width + 1, floor(&raw, &template.writes()?).await?));
        together.push(rate(width + 1, floor(&raw, &merged.writes()?).await?));
        let runtime = Runtime::builder(bench.database().uri)
            .concurrency(width + 1)
            .build()
            .await?;
        runtime.register_all(methods(width))?;
        runtime.spawn();
        let began = Instant::now();
        fan_out(&runtime, width).await?;
        ours.push(rate(width + 1, began.elapsed()));
        runtime.shutdown().await;
    }
    let name = format!("fan-out of {width}, outputs of 1 KiB, and a join");
    let ours = median(&ours);
    let row = |name: String, floors: &[f64]| {
        Row::against(name, "actions/s", median(floors), ours).target(Target::AtLeast(0.5))
    };
    Ok(vec![
        row(name.clone(), &single).note(format!(
            "the floor inserts the milestone, stores {width} outputs in it by the runtime's own updates, one an output and {BATCH} a command, \
             then makes the last one; the document is one, so its commands follow each other"
        )),
        row(format!("{name}, merged"), &together).note(format!(
            "here the floor stores {BATCH} outputs by one update: no {width} + 2 writes, but what a program could do that has {BATCH} outputs at hand"
        )),
    ])
}

async fn floor(raw: &Raw, writes: &Writes) -> Result<Duration> {
    let (last, parts) = writes
        .updates
        .split_last()
        .context("a fan-out without updates")?;
    let began = Instant::now();
    raw.insert(std::slice::from_ref(&writes.insert)).await?;
    for batch in parts.chunks(BATCH) {
        raw.update_in_order(batch).await?;
    }
    raw.update([last]).await?;
    Ok(began.elapsed())
}

fn methods(width: usize) -> [Method; 2] {
    let part = |_call: Call| async { Ok::<_, ActionError>("x".repeat(OUTPUT)) };
    let join = move |call: Call| async move {
        let mut bytes = 0;
        for number in 0..width {
            bytes += call.output_of::<String>(&name(number))?.len();
        }
        Ok::<_, ActionError>(bytes)
    };
    [
        Method::new("part", part).options(Options::idempotent()),
        Method::new("join", join).options(Options::idempotent()),
    ]
}

fn name(number: usize) -> String {
    format!("part-{number}")
}

async fn fan_out(runtime: &Runtime, width: usize) -> Result<()> {
    let parts = (0..width).map(|number| Action::new(name(number)).method("part"));
    let graph = Action::fork("all").next(parts).done("join");
    let started = runtime.start("fan-out", graph, Payload::new()).await?;
    let _: Document = started.outcome().await?;
    Ok(())
}
