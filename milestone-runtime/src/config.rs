//! The settings of a runtime, with their defaults.

use std::time::Duration;

use milestone_core::limits::Limits;

use crate::error::Error;

/// The longest time that is waited for anything: clocks do not overflow with it.
pub(crate) const LONGEST: Duration = Duration::from_hours(365 * 24);

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) concurrency: usize,
    pub(crate) grace: Duration,
    /// `None`: by the action's timeout, see [`Config::settle`].
    pub(crate) settle: Option<Duration>,
    pub(crate) start_timeout: Duration,
    /// How far the clocks of the database's servers may be apart.
    pub(crate) clock_skew: Duration,
    pub(crate) limits: Limits,
    /// Nothing runs here: milestones are started and read only.
    pub(crate) client: bool,
}

impl Config {
    pub(crate) fn new() -> Self {
        Self {
            name: default_name(),
            lease: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            concurrency: 100,
            grace: Duration::from_secs(30),
            settle: None,
            start_timeout: Duration::from_secs(30),
            clock_skew: Duration::from_mins(1),
            limits: Limits::new(),
            client: false,
        }
    }

    /// How long an attempt that was cut off may still take effect.
    pub(crate) fn settle(&self, timeout: Option<Duration>) -> Duration {
        let by_timeout =
            timeout.map_or(Duration::ZERO, |timeout| timeout.min(LONGEST) + self.grace);
        self.settle
            .unwrap_or(by_timeout.max(Duration::from_secs(30)))
    }

    /// How much longer than it says a lease is left alone by others: a renewal of its owner may be on its way.
    pub(crate) fn margin(&self) -> Duration {
        self.lease / 20
    }

    /// How long a lease says that it is. With the margin it is as long as was asked for, so that what a dead worker held runs elsewhere within
    /// one lease and one poll.
    pub(crate) fn stored_lease(&self) -> Duration {
        self.lease * 19 / 20
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let setting = |setting, value: String, accepted| {
            Err(Error::Setting {
                setting,
                value,
                accepted,
            })
        };
        if self.lease < Duration::from_millis(100) || self.lease > Duration::from_hours(24) {
            return setting(
                "lease",
                format!("{:?}", self.lease),
                "a lease is from 100 ms to 24 h; the default is 10 s",
            );
        }
        if self.poll < Duration::from_millis(1) || self.poll > Duration::from_hours(1) {
            return setting(
                "poll",
                format!("{:?}", self.poll),
                "a poll period is from 1 ms to 1 h; the default is 1 s",
            );
        }
        let long = [
            ("grace", self.grace),
            ("settle", self.settle.unwrap_or_default()),
            ("start_timeout", self.start_timeout),
            ("clock_skew", self.clock_skew),
        ];
        if let Some((name, value)) = long.into_iter().find(|(_, value)| *value > LONGEST) {
            return setting(name, format!("{value:?}"), "it is at most 365 days");
        }
        if self.clock_skew < Duration::from_millis(100) {
            return setting(
                "clock_skew",
                format!("{:?}", self.clock_skew),
                "it is at least 100 ms; the default is 1 min",
            );
        }
        if self.concurrency == 0 || self.concurrency > 100_000 {
            return setting(
                "concurrency",
                self.concurrency.to_string(),
                "from 1 to 100,000 actions at once; the default is 100",
            );
        }
        if self.name.is_empty() || self.name.len() > 256 {
            return setting(
                "worker name",
                format!("`{}`", self.name),
                "a name has from 1 to 256 bytes",
            );
        }
        Ok(())
    }
}

/// Host and process, so that people find it.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .or_else(|| {
            std::env::var("HOSTNAME")
                .or_else(|_| std::env::var("COMPUTERNAME"))
                .ok()
        })
        .unwrap_or_else(|| "worker".to_owned());
    format!("{host}-{}", std::process::id())
}
