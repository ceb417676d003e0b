//! The time of the database server, for those who have no runtime.

use std::time::Duration;

use bson::{DateTime, doc};
use mongodb::{
    Client,
    error::{Error, Result},
    options::{ReadPreference, SelectionCriteria},
};
use tokio::{sync::Mutex, time::Instant};

use crate::engine::clock::Clock;

/// How long the server's time is told by the monotonic clock before the server is asked again.
const LIFE: Duration = Duration::from_mins(1);

pub(crate) struct ServerClock {
    client: Client,
    known: Mutex<Option<Known>>,
}

struct Known {
    clock: Clock,
    asked: Instant,
}

impl ServerClock {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// The time of the server. Only the first one who asks, and one a minute, waits for it.
    pub(crate) async fn now(&self) -> Result<DateTime> {
        let mut known = self.known.lock().await;
        if let Some(known) = &mut *known {
            if known.asked.elapsed() >= LIFE {
                match self.ask().await {
                    Ok((time, round_trip)) => known.clock.set(time, round_trip),
                    // What is known is good for another minute, and if the server is away, the write that follows will tell.
                    Err(error) => tracing::debug!(%error, "the server does not tell its time"),
                }
                known.asked = Instant::now();
            }
            return Ok(known.clock.now());
        }
        let (time, round_trip) = self.ask().await?;
        let clock = Clock::new(time, round_trip);
        let now = clock.now();
        let asked = Instant::now();
        *known = Some(Known { clock, asked });
        Ok(now)
    }

    async fn ask(&self) -> Result<(DateTime, Duration)> {
        let asked = Instant::now();
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let hello = self
            .client
            .database("admin")
            .run_command(doc! { "hello": 1 })
            .selection_criteria(primary)
            .await?;
        let time = hello.get_datetime("localTime");
        let time =
            time.map_err(|_| Error::custom("the server does not tell its time (`localTime`)"))?;
        Ok((*time, asked.elapsed()))
    }
}
