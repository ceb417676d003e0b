//! What one worker sends to drain a backlog.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use bson::Document;

use super::{BATCH, filled, finish};
use crate::{
    bench::Bench,
    commands::{Commands, Kind},
    statistics::ms,
    worker::ours::{bare, step},
};

/// Drains it once more in this process, where the commands are seen: how many of each kind, and how long the server took for them.
pub(super) async fn note(bench: &Bench, template: &Document, backlog: usize) -> Result<String> {
    let scratch = filled(bench, template, backlog).await?;
    let commands = Commands::default();
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let runtime = bare("")
        .store(Arc::new(commands.store(&scratch).await?))
        .concurrency(BATCH)
        .register(step(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        }))
        .build()
        .await?;
    commands.take();
    let began = Instant::now();
    let robot = runtime.spawn();
    while done.load(Ordering::Relaxed) < backlog {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    finish(&scratch).await?;
    let took = began.elapsed();
    let sent = commands.take();
    robot.shutdown().await;
    let mut of_kind: BTreeMap<Kind, (usize, usize, Duration)> = BTreeMap::new();
    for command in sent.iter().filter(|command| command.kind != Kind::Other) {
        let (count, documents, time) = of_kind.entry(command.kind).or_default();
        *count += 1;
        *documents += command.size();
        *time += command.took.unwrap_or_default();
    }
    let of_kind: Vec<_> = of_kind
        .into_iter()
        .map(|(kind, (count, documents, time))| match documents {
            0 => format!("{count} {kind} ({:.0} ms)", ms(time)),
            _ => format!("{count} {kind} of {documents} ({:.0} ms)", ms(time)),
        })
        .collect();
    Ok(format!(
        "drained once more in one process, in {:.0} ms, with {}",
        ms(took),
        of_kind.join(", ")
    ))
}
