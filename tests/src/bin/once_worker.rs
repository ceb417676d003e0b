//! A worker of transfers: `once_worker URI ACCOUNTS WRITE before|after [ID FROM TO AMOUNT]`. Its accounts are in the collection `accounts` of the
//! same database, to which it has a way of its own (`ACCOUNTS`, a URI). It ends by SIGABRT before or after its write of that number, on
//! whichever way; 0 is none. With an id it starts that transfer and ends with it.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicUsize, Ordering},
    },
};

use anyhow::Context as _;
use bson::Document;
use milestone_runtime::store::mongodb::{DEFAULT_COLLECTION, MongoStore};
use milestone_tests::transfer;
use mongodb::{
    Client,
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};

const WRITES: [&str; 6] = [
    "insert",
    "update",
    "delete",
    "findAndModify",
    "bulkWrite",
    "createIndexes",
];

/// Ends the process at a write.
#[derive(Clone)]
struct Doom(Arc<Inner>);

struct Inner {
    at: usize,
    before: bool,
    writes: AtomicUsize,
    /// The request after whose reply it ends.
    last: AtomicI32,
}

impl Doom {
    fn handler(&self) -> EventHandler<CommandEvent> {
        let doom = self.clone();
        EventHandler::callback(move |event| doom.see(&event))
    }

    fn see(&self, event: &CommandEvent) {
        let Inner {
            at,
            before,
            writes,
            last,
        } = &*self.0;
        match event {
            CommandEvent::Started(started) if WRITES.contains(&&*started.command_name) => {
                if writes.fetch_add(1, Ordering::SeqCst) + 1 != *at {
                    return;
                }
                if *before {
                    std::process::abort();
                }
                last.store(started.request_id, Ordering::SeqCst);
            }
            CommandEvent::Succeeded(reply) if reply.request_id == last.load(Ordering::SeqCst) => {
                std::process::abort()
            }
            _ => {}
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [uri, accounts, at, moment, transfer @ ..] = &*arguments else {
        anyhow::bail!("arguments are missing");
    };
    let doom = Doom(Arc::new(Inner {
        at: at.parse()?,
        before: moment == "before",
        writes: AtomicUsize::new(0),
        last: AtomicI32::new(-1),
    }));
    let options = |uri: String, doom: Doom| async move {
        let mut options = ClientOptions::parse(uri).await?;
        options.command_event_handler = Some(doom.handler());
        anyhow::Ok(options)
    };
    let ours = options(uri.clone(), doom.clone()).await?;
    let database = ours
        .default_database
        .clone()
        .context("the URI names no database")?;
    let client = Client::with_options(options(accounts.clone(), doom).await?)?;
    let accounts = client
        .database(&database)
        .collection::<Document>("accounts");
    let store = MongoStore::new(ours, &*database, DEFAULT_COLLECTION);
    let builder = transfer::builder(uri).store(Arc::new(store));
    let runtime = transfer::with_actions(builder, &accounts).build().await?;
    let robot = runtime.spawn();
    let [id, from, to, amount] = transfer else {
        std::future::pending::<()>().await;
        return Ok(());
    };
    let parameters = transfer::parameters(from, to, amount.parse()?);
    let handle = runtime
        .start("transfer", transfer::graph(), parameters)
        .id(&**id)
        .await?;
    handle.ended().await?;
    robot.shutdown().await;
    Ok(())
}
