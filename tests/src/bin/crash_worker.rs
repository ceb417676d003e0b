//! A worker for tests that kill it: `crash_worker URI JOURNAL [ACTION]`. Attempts of ACTION never end.
//!
//! Each attempt that begins appends a line to the journal: the milestone, the action, and the attempt's number.

use std::{env, fs::File, io::Write as _, time::Duration};

use anyhow::Context as _;
use milestone_examples::bank::{Balance, Bank};
use milestone_runtime::prelude::*;

/// How long an action of a transfer takes, so that a kill finds many of them at work.
const PACE: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

/// What attempts write to and stall at.
struct Script {
    journal: File,
    stall: Option<String>,
}

impl Script {
    async fn begin(&self, cx: &Context) -> Result<(), ActionError> {
        let line = format!("{} {} {}\n", cx.milestone_id(), cx.action(), cx.attempt());
        // One write to a file that is open for appending: lines of several processes do not mix.
        (&self.journal).write_all(line.as_bytes())?;
        if self.stall.as_deref() == Some(cx.action()) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[action(idempotent, undo = refund)]
async fn debit(
    Params(t): Params<Transfer>,
    bank: State<Bank>,
    script: State<Script>,
    cx: Context,
) -> Result<Balance, ActionError> {
    script.begin(&cx).await?;
    tokio::time::sleep(PACE).await;
    let balance = bank.book(&cx.idempotency_key(), &t.from, -t.amount).await?;
    tokio::time::sleep(PACE).await;
    Ok(balance)
}

#[action(idempotent)]
async fn credit(
    Params(t): Params<Transfer>,
    Output(_debit): Output<debit>,
    bank: State<Bank>,
    script: State<Script>,
    cx: Context,
) -> Result<Balance, ActionError> {
    script.begin(&cx).await?;
    tokio::time::sleep(PACE).await;
    let balance = bank.book(&cx.idempotency_key(), &t.to, t.amount).await?;
    tokio::time::sleep(PACE).await;
    Ok(balance)
}

#[action(idempotent)]
async fn refund(
    Params(t): Params<Transfer>,
    bank: State<Bank>,
    cx: Context,
) -> Result<(), ActionError> {
    Ok(bank.cancel(&cx.key_of("debit"), &t.from, -t.amount).await?)
}

#[action(idempotent)]
async fn root(script: State<Script>, cx: Context) -> Result<i64, ActionError> {
    script.begin(&cx).await?;
    Ok(cx.attempt())
}

#[action(idempotent)]
async fn next(script: State<Script>, cx: Context) -> Result<i64, ActionError> {
    script.begin(&cx).await?;
    Ok(cx.attempt())
}

#[action(idempotent)]
async fn grandchild(script: State<Script>, cx: Context) -> Result<i64, ActionError> {
    script.begin(&cx).await?;
    Ok(cx.attempt())
}

#[action(idempotent)]
async fn done(script: State<Script>, cx: Context) -> Result<i64, ActionError> {
    script.begin(&cx).await?;
    Ok(cx.attempt())
}

#[action]
async fn charge(script: State<Script>, cx: Context) -> Result<i64, ActionError> {
    script.begin(&cx).await?;
    Ok(cx.attempt())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let uri = arguments.next().context("the URI is missing")?;
    let journal = arguments.next().context("the journal is missing")?;
    let journal = File::options().append(true).create(true).open(journal)?;
    let script = Script {
        journal,
        stall: arguments.next(),
    };
    let runtime = Runtime::builder(&uri)
        .state(Bank::open(&uri).await?)
        .state(script)
        .lease(Duration::from_secs(2))
        .poll(Duration::from_millis(200))
        .concurrency(8)
        .build()
        .await?;
    runtime.spawn();
    std::future::pending::<()>().await;
    Ok(())
}
