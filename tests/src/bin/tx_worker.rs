//! A worker with the transactional action `pay`, for tests that kill and freeze it:
//! `tx_worker URI JOURNAL NAME LEASE POLL [MOMENT]`, times in milliseconds.
//!
//! At `before-commit` and `after-commit` the process ends as by SIGKILL. At `read` the first attempt notes that it has read in the journal, and
//! goes on once there is a file `JOURNAL.go`.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use bson::{Document, doc};
use milestone_runtime::{
    Method,
    action::Call,
    mongo::Tx,
    prelude::*,
    store::mongodb::{DEFAULT_COLLECTION, MongoStore},
};
use milestone_tests::{
    journal::{Journal, What},
    payments::{Transfer, pay, put, quick, take},
    place::bare,
};
use mongodb::{
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};
use rustix::process::{Signal, getpid, kill_process};

fn die() {
    kill_process(getpid(), Signal::KILL).expect("a process can kill itself");
}

/// Ends the process at a commit.
fn at_commits(moment: String) -> EventHandler<CommandEvent> {
    EventHandler::callback(move |event| match event {
        CommandEvent::Started(event)
            if moment == "before-commit" && event.command_name == "commitTransaction" =>
        {
            die();
        }
        CommandEvent::Succeeded(event)
            if moment == "after-commit" && event.command_name == "commitTransaction" =>
        {
            die();
        }
        _ => {}
    })
}

/// Stays between reading and writing until it is told to go on.
async fn pay_slowly(
    call: &Call,
    tx: &mut Tx,
    journal: &Journal,
    go: &Path,
) -> Result<i64, ActionError> {
    let Params(transfer) = call.extract::<Params<Transfer>>()?;
    let accounts = tx.collection::<Document>("accounts");
    let read = tx
        .run(accounts.find_one(doc! { "_id": &transfer.from }))
        .await?;
    let read = read.map(|account| account.get_i64("balance").unwrap_or_default());
    let mark = format!("read-{}", read.unwrap_or_default());
    journal.note(call.context(), What::Begun, &mark)?;
    while !go.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    take(tx, &transfer.from, transfer.amount).await?;
    let balance = put(tx, call, &transfer).await;
    let mark = if balance.is_ok() { "paid" } else { "refused" };
    journal.note(call.context(), What::Ended, mark)?;
    balance
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().context("an argument is missing");
    let (uri, journal, name) = (next()?, PathBuf::from(next()?), next()?);
    let lease = Duration::from_millis(next()?.parse()?);
    let poll = Duration::from_millis(next()?.parse()?);
    let moment = arguments.next().unwrap_or_default();
    let mut options = ClientOptions::parse(&uri).await?;
    options.command_event_handler = Some(at_commits(moment.clone()));
    let database = options.default_database.clone().context("a database")?;
    let store = MongoStore::new(options, database, DEFAULT_COLLECTION);
    let method = if moment == "read" {
        let go = journal.with_added_extension("go");
        let journal = std::sync::Arc::new(Journal::open(&journal)?);
        Method::transactional("pay", move |call, tx| {
            let (journal, go) = (std::sync::Arc::clone(&journal), go.clone());
            Box::pin(async move { pay_slowly(call, tx, &journal, &go).await })
        })
        .options(quick())
    } else {
        pay()
    };
    let runtime = bare(uri)
        .store(std::sync::Arc::new(store))
        .worker_name(name)
        .lease(lease)
        .poll(poll)
        .clock_skew(Duration::from_millis(200))
        .register(method)
        .build()
        .await?;
    runtime.run_until(milestone_runtime::stop_signal).await;
    Ok(())
}
