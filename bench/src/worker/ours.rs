//! Workers and clients of milestones, as the processes of the benchmark run them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use bson::Bson;
use milestone_runtime::{
    Method, Runtime, RuntimeBuilder,
    action::{ActionError, Options, RetryPolicy},
};
use serde::{Deserialize, Serialize};

use super::Answer;

/// The action that does nothing.
pub(crate) const STEP: &str = "step";

/// The action that fails, and is tried again in an hour.
pub(crate) const STRUGGLE: &str = "struggle";

/// The parameters, 200 bytes of BSON with the time at which it was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Parcel {
    /// In microseconds since 1970, by the wall clock, which all processes of a machine share.
    pub(crate) sent: i64,
    payload: String,
}

impl Parcel {
    pub(crate) fn now() -> Self {
        Self {
            sent: micros(),
            payload: "x".repeat(167),
        }
    }

    /// How long ago it was sent.
    pub(crate) fn age(parameters: &Bson) -> Duration {
        let sent = parameters
            .as_document()
            .and_then(|parcel| parcel.get_i64("sent").ok());
        age(sent.unwrap_or_default())
    }
}

/// The wall clock, in microseconds since 1970.
pub(crate) fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// How long ago that was.
pub(crate) fn age(sent: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros() - sent).unwrap_or(0))
}

/// A runtime that has none of the actions of the binary.
pub(crate) fn bare(uri: &str) -> RuntimeBuilder {
    Runtime::builder(uri).actions(std::iter::empty::<String>())
}

/// The action that does nothing but tell that it has begun.
pub(crate) fn step(begun: impl Fn(&Bson) + Send + Sync + 'static) -> Method {
    Method::new(STEP, move |call| {
        begun(call.parameters());
        async { Ok::<_, ActionError>(()) }
    })
    .options(Options::idempotent())
}

fn struggle(begun: impl Fn() + Send + Sync + 'static) -> Method {
    const WAIT: Duration = Duration::from_hours(1);
    Method::new(STRUGGLE, move |_| {
        begun();
        async { Err::<(), _>("the other side is away") }
    })
    .options(Options::idempotent().retry(RetryPolicy::new().base(WAIT).cap(WAIT)))
}

/// A worker with both actions.
pub(super) struct Worker {
    runtime: Runtime,
    done: Arc<AtomicU64>,
}

impl Worker {
    pub(super) async fn new(uri: &str, places: usize) -> Result<Self> {
        let done = Arc::new(AtomicU64::new(0));
        let count = || {
            let done = Arc::clone(&done);
            move || {
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (stepped, struggled) = (count(), count());
        let runtime = bare(uri)
            .concurrency(places)
            .register(step(move |_| stepped()))
            .register(struggle(struggled))
            .build()
            .await?;
        Ok(Self { runtime, done })
    }

    pub(super) fn work(&self) {
        self.runtime.spawn();
    }

    pub(super) fn answer(&self) -> Answer {
        Answer {
            done: self.done.load(Ordering::Relaxed),
            missed: self.runtime.metrics().missed_claims,
            ..Answer::default()
        }
    }
}

/// A client that starts milestones of one action.
pub(crate) struct Client(pub(crate) Runtime);

impl Client {
    pub(crate) async fn new(uri: &str) -> Result<Self> {
        let builder = bare(uri).client();
        let builder = builder.register(step(|_| {})).register(struggle(|| {}));
        Ok(Self(builder.build().await?))
    }

    pub(super) async fn start(&self) -> Result<()> {
        self.0.start("Parcel", STEP, Parcel::now()).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_has_200_bytes() {
        let parcel = bson::serialize_to_vec(&Parcel::now()).unwrap();
        assert_eq!(parcel.len(), 200);
    }
}
