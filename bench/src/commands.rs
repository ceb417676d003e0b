//! The commands that a store sends, and how long the server took for each.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use bson::Document;
use milestone_runtime::store::mongodb::MongoStore;
use mongodb::{
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};

use crate::{bench::Scratch, template::MILESTONES};

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Which milestones are due.
    Look,
    /// Another query of milestones.
    Read,
    /// An update by which milestones are taken.
    Claim,
    /// Another write, by its collection.
    Write,
    /// What the driver and people are told: the time, whether the worker lives, the next event of the change stream.
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "looks",
            Self::Read => "reads",
            Self::Claim => "claims",
            Self::Write => "writes",
            Self::Other => "others",
        })
    }
}

/// A command, as far as it is of interest.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) name: String,
    pub(crate) collection: String,
    pub(crate) kind: Kind,
    pub(crate) body: Document,
    /// Once it has succeeded.
    pub(crate) took: Option<Duration>,
}

/// All commands since the last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    commands: Vec<Command>,
    /// The place of each that is on its way.
    under_way: HashMap<i32, usize>,
}

impl Commands {
    /// A store whose commands they are.
    pub(crate) async fn store(&self, scratch: &Scratch) -> Result<MongoStore> {
        let mut options = ClientOptions::parse(&scratch.uri).await?;
        options.command_event_handler = Some(self.handler());
        Ok(MongoStore::new(
            options,
            scratch.database.name(),
            MILESTONES,
        ))
    }

    fn handler(&self) -> EventHandler<CommandEvent> {
        let commands = self.clone();
        EventHandler::callback(move |event| commands.note(event))
    }

    /// What has come since, in the order in which it was sent.
    pub(crate) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut *self.state()).commands
    }

    fn note(&self, event: CommandEvent) {
        let mut state = self.state();
        match event {
            CommandEvent::Started(event) => {
                let place = state.commands.len();
                state.under_way.insert(event.request_id, place);
                state
                    .commands
                    .push(Command::of(event.command_name, event.command));
            }
            CommandEvent::Succeeded(event) => {
                if let Some(place) = state.under_way.remove(&event.request_id) {
                    state.commands[place].took = Some(event.duration);
                }
            }
            CommandEvent::Failed(event) => {
                state.under_way.remove(&event.request_id);
            }
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Command {
    /// How many documents it changes.
    pub(crate) fn size(&self) -> usize {
        let statements = ["updates", "documents"].map(|name| self.body.get_array(name));
        statements.into_iter().flatten().map(Vec::len).sum()
    }

    fn of(name: String, body: Document) -> Self {
        let named = body.get_str(&name).or_else(|_| body.get_str("collection"));
        let collection = named.unwrap_or_default().to_owned();
        Self {
            kind: kind(&name, &collection, &body),
            name,
            collection,
            body,
            took: None,
        }
    }
}

fn kind(name: &str, collection: &str, body: &Document) -> Kind {
    match name {
        "find" if collection == MILESTONES => {
            let filter = body.get_document("filter");
            if filter.is_ok_and(|filter| filter.contains_key("next.at")) {
                Kind::Look
            } else {
                Kind::Read
            }
        }
        "aggregate" if is_watch(body) => Kind::Other,
        "aggregate" | "count" | "distinct" if collection == MILESTONES => Kind::Read,
        "update" if takes(body) => Kind::Claim,
        "update" | "insert" | "delete" | "findAndModify" | "bulkWrite" => Kind::Write,
        _ => Kind::Other,
    }
}

fn is_watch(body: &Document) -> bool {
    let pipeline = body.get_array("pipeline");
    let first = pipeline
        .ok()
        .and_then(|stages| stages.first()?.as_document());
    first.is_some_and(|stage| stage.contains_key("$changeStream"))
}

/// Whether an update takes milestones.
fn takes(body: &Document) -> bool {
    let updates = body.get_array("updates");
    let first = updates
        .ok()
        .and_then(|updates| updates.first()?.as_document());
    let set = first.and_then(|first| first.get_document("u").ok()?.get_document("$set").ok());
    set.is_some_and(|set| set.contains_key("lease"))
}
