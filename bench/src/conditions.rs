//! Under which conditions the figures were measured.

use std::{fmt, fs, num::NonZero, thread};

use anyhow::{Context as _, Result};
use bson::doc;
use jiff::Timestamp;
use serde::Serialize;

use crate::bench::{Bench, Size};

/// How many statements a command of the floor holds.
pub(crate) const BATCH: usize = 64;

/// Under which conditions the figures were measured.
#[derive(Serialize)]
pub(crate) struct Conditions {
    server: String,
    sync: String,
    sqlite: &'static str,
    cores: usize,
    batch: usize,
    size: &'static str,
    profile: &'static str,
    date: String,
    /// Of the last minute before the start, where the system tells.
    load: Option<f64>,
}

impl Conditions {
    pub(crate) async fn of(bench: &Bench, sync: String) -> Result<Self> {
        let admin = bench.client.database("admin");
        let build = admin
            .run_command(doc! { "buildInfo": 1 })
            .await
            .context("the server of `--uri` does not answer")?;
        let hello = admin.run_command(doc! { "hello": 1 }).await?;
        let version = build.get_str("version").unwrap_or("of unknown version");
        let set = match hello.get_str("setName") {
            Ok(name) => format!(", replica set {name}"),
            Err(_) => String::new(),
        };
        let server = match build.get_str("secantusVersion") {
            Ok(own) => format!("secantus-mdb {own}, as MongoDB {version}{set}"),
            Err(_) => format!("MongoDB {version}{set}"),
        };
        Ok(Self {
            server,
            sync,
            sqlite: rusqlite::version(),
            cores: thread::available_parallelism().map_or(1, NonZero::get),
            batch: BATCH,
            size: match bench.size() {
                Size::Full => "full",
                Size::Quick => "quick",
                Size::Smoke => "smoke",
            },
            profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
            date: Timestamp::now().to_string(),
            load: load(),
        })
    }
}

/// The load average of the last minute.
fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "server    {}; writes are {}", self.server, self.sync)?;
        writeln!(f, "embedded  SQLite {}", self.sqlite)?;
        write!(
            f,
            "machine   {} cores, load {} at the start, {} profile",
            self.cores,
            self.load
                .map_or_else(|| "unknown".to_owned(), |load| load.to_string()),
            self.profile
        )?;
        writeln!(f)?;
        write!(
            f,
            "run       {} size, floors in batches of {}, {}",
            self.size, self.batch, self.date
        )
    }
}
