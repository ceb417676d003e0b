//! The same with the embedded store, whose writes go to one file one after the other, so that there is one worker.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, OpenFlags, params};

use super::{BATCH, begun, share, tell};
use crate::{
    bench::Bench,
    row::{Row, Target},
    statistics::{median, rate},
    worker::{
        Job, Order, Process,
        ours::{Client, Parcel, STEP},
    },
};

/// How many are started at once.
const AT_ONCE: usize = 5_000;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let (rounds, backlog) = bench.pick((3, 50_000), (1, 10_000), (1, 100));
    let full = filled(bench, backlog).await?;
    let (mut floors, mut figures, mut missed) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let file = copy(bench, &full)?;
        let floor = tokio::task::spawn_blocking(move || raw(&file, backlog)).await??;
        floors.push(rate(backlog, floor));
        let (ours, missed_of_it) = ours(&copy(bench, &full)?, backlog).await?;
        figures.push(rate(backlog, ours));
        missed += missed_of_it;
    }
    let wasted = share(missed, backlog * rounds);
    let row = Row::against(
        format!("backlog of {backlog}, embedded, 1 worker process"),
        "milestones/s",
        median(&floors),
        median(&figures),
    );
    Ok(vec![row.target(Target::AtLeast(0.6)).note(format!(
        "one action each, {BATCH} places; {wasted:.1} % of the claims were wasted; the floor is SQLite on the same table (WAL, synchronous=FULL): \
         it reads {BATCH} rows that are due, writes them in one transaction as taken, and in another one as completed, the whole document each time"
    ))])
}

/// A file with a backlog.
async fn filled(bench: &Bench, backlog: usize) -> Result<PathBuf> {
    let file = bench.file();
    let client = Client::new(&uri(&file)).await?;
    let mut left = backlog;
    while left > 0 {
        let count = left.min(AT_ONCE);
        let starts =
            (0..count).map(|_| client.0.start("Parcel", STEP, Parcel::now()).into_future());
        for started in futures_util::future::join_all(starts).await {
            started?;
        }
        left -= count;
    }
    drop(client);
    // All of it is then in the one file that is copied.
    let connection = connect(&file)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(file)
}

fn copy(bench: &Bench, full: &Path) -> Result<PathBuf> {
    let file = bench.file();
    fs::copy(full, &file)?;
    Ok(file)
}

fn uri(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

fn connect(file: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")?;
    Ok(connection)
}

async fn ours(file: &Path, backlog: usize) -> Result<(Duration, u64)> {
    let job = Job::Worker {
        uri: uri(file),
        places: BATCH,
    };
    let mut worker = [Process::start(&job).await?];
    let reading = connect(file)?;
    let began = Instant::now();
    tell(&mut worker, Order::Work).await?;
    begun(&mut worker, backlog).await?;
    while is_unfinished(&reading)? {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = began.elapsed();
    let told = tell(&mut worker, Order::Tell).await?;
    Ok((took, told.iter().map(|answer| answer.missed).sum()))
}

fn is_unfinished(connection: &Connection) -> Result<bool> {
    let mut unfinished = connection
        .prepare_cached("SELECT 1 FROM _milestones_ WHERE next_at IS NOT NULL LIMIT 1")?;
    Ok(unfinished.exists([])?)
}

/// Takes and completes all of them.
fn raw(file: &Path, backlog: usize) -> Result<Duration> {
    let mut connection = connect(file)?;
    let began = Instant::now();
    let mut done = 0;
    loop {
        let mut due = connection.prepare_cached(
            "SELECT id, doc FROM _milestones_ WHERE next_queue = 'default' AND next_at <= ? AND owner IS NULL ORDER BY next_at LIMIT ?",
        )?;
        let found = due.query_map(params![i64::MAX, i64::try_from(BATCH)?], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        drop(due);
        if found.is_empty() {
            break;
        }
        write(
            &mut connection,
            "UPDATE _milestones_ SET owner = 'raw', until = next_at + 10000, next_at = next_at + 10000, doc = ?2 WHERE id = ?1",
            &found,
        )?;
        write(
            &mut connection,
            "UPDATE _milestones_ SET state = 'completed', owner = NULL, until = NULL, next_queue = NULL, next_at = NULL, due = NULL, \
             doc = ?2 WHERE id = ?1",
            &found,
        )?;
        done += found.len();
    }
    ensure!(done == backlog, "SQLite completed {done} of {backlog}");
    Ok(began.elapsed())
}

fn write(connection: &mut Connection, sql: &str, rows: &[(String, Vec<u8>)]) -> Result<()> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let mut statement = transaction.prepare_cached(sql)?;
    for (id, document) in rows {
        let changed = statement.execute(params![id, document])?;
        ensure!(changed == 1, "a row has gone");
    }
    drop(statement);
    transaction
        .commit()
        .context("what was written is not stored")
}
