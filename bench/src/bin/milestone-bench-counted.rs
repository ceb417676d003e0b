//! What milestones allocate: `milestone-bench-counted URI IN_FLIGHT CHAINS` prints it as JSON. It is a program of its own, since each allocation
//! is counted here, and that costs time.

use std::{
    alloc::System,
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use milestone_runtime::{Method, Runtime, action::Options, prelude::*};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};
use tokio::sync::watch;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How many chains are in flight at once.
const AT_ONCE: usize = 64;

/// The action that waits until it is let go.
const STAY: &str = "stay";

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(first -> second)]
struct Parcel {
    payload: String,
}

#[action(idempotent)]
async fn first(Params(parcel): Params<Parcel>) -> Result<usize, ActionError> {
    Ok(parcel.payload.len())
}

#[action(idempotent)]
async fn second(Output(length): Output<first>) -> Result<usize, ActionError> {
    Ok(length)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let uri = arguments.next().context("the URI is missing")?;
    let in_flight: usize = arguments.next().context("how many?")?.parse()?;
    let chains: usize = arguments.next().context("how many?")?.parse()?;
    let staying = Staying::new(&uri, in_flight).await?;
    // The first time is for what is made once and kept.
    staying.bytes_of(in_flight).await?;
    let bytes = staying.bytes_of(in_flight).await?;
    drop(staying);
    let runtime = Runtime::builder(&uri).build().await?;
    let robot = runtime.spawn();
    run(&runtime, chains.min(200)).await?;
    let before = ALLOCATOR.stats();
    run(&runtime, chains).await?;
    let allocated = ALLOCATOR.stats() - before;
    robot.shutdown().await;
    println!(
        "{}",
        json!({
            "in_flight": bytes,
            "payload": bson::serialize_to_vec(&parcel())?.len(),
            "allocations": float(allocated.allocations + allocated.reallocations) / float(chains),
            "bytes": float(allocated.bytes_allocated) / float(chains),
        })
    );
    Ok(())
}

fn parcel() -> Parcel {
    Parcel {
        payload: "x".repeat(181),
    }
}

/// Runs so many chains to their end.
async fn run(runtime: &Runtime, chains: usize) -> Result<()> {
    stream::iter(0..chains)
        .map(|_| async {
            let started = parcel().start(runtime).await?;
            anyhow::Ok(started.outcome().await?)
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| future::ok(()))
        .await
}

/// A worker whose actions stay until they are let go.
struct Staying {
    runtime: Runtime,
    here: Arc<AtomicUsize>,
    gate: watch::Sender<bool>,
}

impl Staying {
    async fn new(uri: &str, places: usize) -> Result<Self> {
        let here = Arc::new(AtomicUsize::new(0));
        let (gate, open) = watch::channel(false);
        let count = Arc::clone(&here);
        let stay = Method::new(STAY, move |_| {
            let (mut open, count) = (open.clone(), Arc::clone(&count));
            async move {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = open.wait_for(|open| *open).await;
                count.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, ActionError>(())
            }
        });
        let runtime = Runtime::builder(uri)
            .actions(std::iter::empty::<String>())
            .concurrency(places)
            .register(stay.options(Options::idempotent()))
            .build()
            .await?;
        runtime.spawn();
        Ok(Self {
            runtime,
            here,
            gate,
        })
    }

    /// How many bytes each of so many milestones in flight holds.
    async fn bytes_of(&self, count: usize) -> Result<f64> {
        self.gate.send_replace(false);
        let before = self.settled().await;
        let starts = (0..count).map(|_| self.runtime.start("Parcel", STAY, parcel()).into_future());
        let started = future::join_all(starts).await;
        let ids = started
            .into_iter()
            .map(|started| Ok(started?.id().clone()))
            .collect::<Result<Vec<_>>>()?;
        while self.here.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let of_ids = ids.capacity() * size_of_val(&ids[0]);
        let during = self.settled().await;
        self.gate.send_replace(true);
        for id in ids {
            self.runtime.handle(id).ended().await?;
        }
        let of_ids = isize::try_from(of_ids)?;
        Ok(float(usize::try_from(during - before - of_ids).unwrap_or(0)) / float(count))
    }

    /// How many bytes are in use once nothing is on its way.
    async fn settled(&self) -> isize {
        tokio::time::sleep(Duration::from_secs(1)).await;
        in_use(ALLOCATOR.stats())
    }
}

/// Bytes that were allocated and not given back.
fn in_use(stats: Stats) -> isize {
    stats
        .bytes_allocated
        .wrapping_sub(stats.bytes_deallocated)
        .cast_signed()
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn float(count: usize) -> f64 {
    count as f64
}
