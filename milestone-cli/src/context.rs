//! Where a command works, and the way there.

use bson::DateTime;
use clap::{ArgMatches, CommandFactory as _, error::ErrorKind, parser::ValueSource};
use milestone_runtime::{Filter, MilestoneId, MilestoneRecord, Page, Runtime, store::WorkerInfo};

use crate::{
    args::{Cli, FilterArgs, IdArg},
    exit::{Exit, Failure},
    shell,
};

/// Where a command works.
pub(crate) struct Context {
    uri: Option<String>,
    collection: String,
    /// How a command line for the same place begins.
    pub(crate) program: String,
}

impl Context {
    pub(crate) fn new(cli: &Cli, matches: &ArgMatches) -> Self {
        let mut program = "milestone".to_owned();
        let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        if let Some(uri) = cli.place.uri.as_deref().filter(|_| given("uri")) {
            // A password is not told.
            let uri = if uri.contains('@') { "<URI>" } else { uri };
            program = format!("{program} {}", shell::option("--uri", uri));
        }
        if given("collection") {
            let collection = shell::option("--collection", &cli.place.collection);
            program = format!("{program} {collection}");
        }
        Self {
            uri: cli.place.uri.clone(),
            collection: cli.place.collection.clone(),
            program,
        }
    }

    /// Connects. Nothing runs here, and no collection is made.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let Some(uri) = self.uri.as_deref().filter(|uri| !uri.is_empty()) else {
            let what = "no database is named: set MILESTONE_URI, or give --uri, for example mongodb://localhost:27017/bank or sqlite:bank.db";
            Cli::command()
                .error(ErrorKind::MissingRequiredArgument, what)
                .exit()
        };
        if uri == "memory:" {
            anyhow::bail!(
                "`memory:` is a store within one process: there is nothing to look at from another one"
            );
        }
        let runtime = Runtime::builder(uri)
            .collection(&self.collection)
            .worker_name(operator())
            .client()
            .existing()
            .build()
            .await?;
        Ok(Client { runtime })
    }
}

/// Who sends commands: the user and the host.
fn operator() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("USER")
        .or_else(|| variable("LOGNAME"))
        .or_else(|| variable("USERNAME"))
        .unwrap_or_else(|| "somebody".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty())
        .or_else(|| variable("HOSTNAME"))
        .or_else(|| variable("COMPUTERNAME"));
    let name = match host {
        Some(host) => format!("{user}@{host}"),
        None => user,
    };
    name.chars().take(64).collect()
}

/// A connection.
pub(crate) struct Client {
    pub(crate) runtime: Runtime,
}

impl Client {
    /// The database server's time.
    pub(crate) fn now(&self) -> DateTime {
        self.runtime.now()
    }

    /// The filter that the arguments mean.
    pub(crate) fn filter(&self, args: &FilterArgs) -> Filter {
        let mut filter = Filter::new();
        filter.kind.clone_from(&args.kind);
        filter.states = args.states.iter().map(|state| state.0).collect();
        filter.labels.clone_from(&args.labels);
        filter.created_after = args.created_after.map(|time| time.before(self.now()));
        filter.created_before = args.created_before.map(|time| time.before(self.now()));
        filter.on_hold = args.on_hold;
        filter
    }

    /// The milestone that an argument means.
    pub(crate) async fn find(&self, id: &IdArg) -> anyhow::Result<MilestoneRecord> {
        let mut filter = Filter::new();
        filter.ids.clone_from(&id.meanings);
        let listed = self.runtime.list(filter, Page::default()).await?;
        if let Some(unreadable) = listed.unreadable.into_iter().next() {
            return Err(unreadable.into());
        }
        let mut found = listed.records.into_iter();
        match (found.next(), found.next()) {
            (None, _) => Err(Failure::error(
                Exit::NotFound,
                format!("there is no milestone `{}`, or no longer", id.text),
            )),
            (Some(record), None) => Ok(record),
            (Some(_), Some(_)) => {
                let text = &id.text;
                anyhow::bail!(
                    "`{text}` is the id of two milestones: write '{{\"$oid\": \"{text}\"}}' or '\"{text}\"'"
                )
            }
        }
    }

    /// The id that an argument means; of one that does not exist, the error says so.
    pub(crate) async fn id(&self, id: &IdArg) -> anyhow::Result<MilestoneId> {
        match id.meanings.as_slice() {
            [only] => Ok(only.clone()),
            _ => Ok(self.find(id).await?.id),
        }
    }

    /// The workers that live, as far as is known.
    pub(crate) async fn live_workers(&self) -> anyhow::Result<Vec<WorkerInfo>> {
        let now = self.now();
        let mut workers = self.runtime.workers().await?;
        workers.retain(|worker| worker.lives_at(now));
        Ok(workers)
    }
}
