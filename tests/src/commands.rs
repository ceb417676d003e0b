//! The commands that a client of the driver sends, by the driver's own events.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bson::Document;
use milestone_runtime::store::mongodb::{DEFAULT_COLLECTION, MongoStore};
use mongodb::{
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};

/// A command that was sent.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its name, such as `find`.
    pub name: String,
    /// The collection that it is about, if it is about one.
    pub collection: String,
    /// All of it.
    pub document: Document,
    /// When it was sent.
    pub at: Instant,
}

impl Command {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        const WRITES: [&str; 5] = ["insert", "update", "findAndModify", "bulkWrite", "delete"];
        WRITES.contains(&&*self.name)
    }

    /// Whether it looks for milestones that are due.
    pub fn looks_for_work(&self) -> bool {
        let filter = self.document.get_document("filter");
        self.collection == DEFAULT_COLLECTION
            && filter.is_ok_and(|filter| filter.contains_key("next.at"))
    }

    /// Whether it opens a change stream.
    pub fn opens_a_stream(&self) -> bool {
        let stages = self.document.get_array("pipeline");
        let first = stages.ok().and_then(|stages| stages.first());
        let first = first.and_then(bson::Bson::as_document);
        first.is_some_and(|stage| stage.contains_key("$changeStream"))
    }
}

/// What a client has sent.
#[derive(Clone, Debug, Default)]
pub struct Commands(Arc<Mutex<Vec<Command>>>);

impl Commands {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store whose commands they are.
    pub fn store(&self, mut options: ClientOptions, database: &str) -> Arc<MongoStore> {
        let commands = self.clone();
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                let name = started.command_name;
                let collection = match &*name {
                    "getMore" => started.command.get_str("collection"),
                    name => started.command.get_str(name),
                };
                let command = Command {
                    collection: collection.unwrap_or_default().to_owned(),
                    name,
                    document: started.command,
                    at: Instant::now(),
                };
                let mut all = commands.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(command);
            }
        }));
        Arc::new(MongoStore::new(options, database, DEFAULT_COLLECTION))
    }

    /// Those that there have been since they were last taken.
    pub fn take(&self) -> Vec<Command> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many of a kind there have been since they were last taken.
    pub fn count(&self, is_meant: impl Fn(&Command) -> bool) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|command| is_meant(command)).count()
    }
}
