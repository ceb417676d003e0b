//! The writes of one milestone, taken from what the runtime itself sends: so a floor has the same bytes, whatever becomes of the runtime.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, RawDocumentBuf, oid::ObjectId};
use milestone_runtime::{
    Method, Runtime,
    store::mongodb::{DEFAULT_COLLECTION, MongoStore},
};
use mongodb::{
    event::{
        EventHandler,
        command::{CommandEvent, CommandStartedEvent},
    },
    options::ClientOptions,
};

use crate::bench::Bench;

/// The writes of one milestone: what is inserted, and the statements of the updates, in order.
pub(crate) struct Template {
    insert: Document,
    updates: Vec<Document>,
}

/// The writes of one milestone with an id and a lease of its own, in the form in which they are sent.
pub(crate) struct Writes {
    pub(crate) insert: RawDocumentBuf,
    pub(crate) updates: Vec<RawDocumentBuf>,
}

impl Template {
    /// Runs one milestone with so many places, and keeps what is written for it. It must be an insert and so many updates.
    pub(crate) async fn record(
        bench: &Bench,
        places: usize,
        updates: usize,
        methods: impl IntoIterator<Item = Method>,
        run: impl AsyncFnOnce(&Runtime) -> Result<()>,
    ) -> Result<Self> {
        let scratch = bench.database();
        let commands = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&commands);
        let mut options = ClientOptions::parse(&scratch.uri).await?;
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(started);
            }
        }));
        let store = MongoStore::new(options, scratch.database.name(), DEFAULT_COLLECTION);
        let runtime = Runtime::builder(scratch.uri)
            .store(Arc::new(store))
            .concurrency(places)
            .build()
            .await?;
        runtime.register_all(methods)?;
        runtime.spawn();
        run(&runtime).await?;
        runtime.shutdown().await;
        let commands =
            std::mem::take(&mut *commands.lock().unwrap_or_else(PoisonError::into_inner));
        let template = Self::of(commands)?;
        ensure!(
            template.updates() == updates,
            "the runtime has made {} updates, not {updates}",
            template.updates()
        );
        Ok(template)
    }

    fn of(commands: Vec<CommandStartedEvent>) -> Result<Self> {
        let mut insert = None;
        let mut updates = Vec::new();
        for CommandStartedEvent {
            mut command,
            command_name,
            ..
        } in commands
        {
            if command.get_str(&command_name).ok() != Some(DEFAULT_COLLECTION) {
                continue;
            }
            match &*command_name {
                "insert" => insert = insert.or_else(|| documents(&mut command, "documents").pop()),
                "update" => updates.extend(
                    documents(&mut command, "updates")
                        .into_iter()
                        .filter(is_patch),
                ),
                _ => {}
            }
        }
        let insert = insert.context("the runtime has inserted no milestone")?;
        ensure!(
            insert.contains_key("lease"),
            "the milestone was not born leased, so its writes are not n + 1"
        );
        Ok(Self { insert, updates })
    }

    /// How many updates there were.
    pub(crate) fn updates(&self) -> usize {
        self.updates.len()
    }

    /// The same writes for another milestone: as many bytes, another id and token.
    pub(crate) fn writes(&self) -> Result<Writes> {
        let id = ObjectId::new();
        let token = self.token_of(id)?;
        let mut insert = self.insert.clone();
        insert.insert("_id", id);
        insert
            .get_document_mut("lease")?
            .insert("token", token.clone());
        let updates = self.updates.iter().map(|statement| {
            let mut statement = statement.clone();
            let filter = statement.get_document_mut("q")?;
            filter.insert("_id", id);
            filter.insert("lease.token", token.clone());
            Ok(RawDocumentBuf::try_from(&statement)?)
        });
        Ok(Writes {
            updates: updates.collect::<Result<_>>()?,
            insert: RawDocumentBuf::try_from(&insert)?,
        })
    }

    /// A token as long as the one that was recorded.
    fn token_of(&self, id: ObjectId) -> Result<String> {
        let length = self.insert.get_document("lease")?.get_str("token")?.len();
        let mut token = id.to_hex().repeat(1 + length / 24);
        token.truncate(length);
        Ok(token)
    }
}

/// Whether a statement is the patch of a commit: a renewal rests on no `rev`.
fn is_patch(statement: &Document) -> bool {
    statement
        .get_document("q")
        .is_ok_and(|filter| filter.contains_key("rev"))
}

fn documents(command: &mut Document, key: &str) -> Vec<Document> {
    let Some(Bson::Array(items)) = command.remove(key) else {
        return Vec::new();
    };
    items
        .into_iter()
        .filter_map(|item| match item {
            Bson::Document(document) => Some(document),
            _ => None,
        })
        .collect()
}
