//! The writes of one milestone, taken from what the runtime itself sends: so a floor has the same bytes, whatever becomes of the runtime.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Bson, Document, RawDocumentBuf, doc, oid::ObjectId};
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

    /// The same with so many updates in one, but for the last update, which stays alone.
    pub(crate) fn merged(&self, together: usize) -> Result<Self> {
        let (last, others) = self
            .updates
            .split_last()
            .context("there are no updates to merge")?;
        let mut updates = Vec::new();
        for part in others.chunks(together) {
            updates.push(merge(part)?);
        }
        updates.push(last.clone());
        Ok(Self {
            insert: self.insert.clone(),
            updates,
        })
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

/// One statement that does what several do one after the other.
fn merge(statements: &[Document]) -> Result<Document> {
    let mut merged = statements.first().context("nothing to merge")?.clone();
    let update = merged.get_document_mut("u")?;
    for statement in &statements[1..] {
        for (operator, changes) in statement.get_document("u")? {
            let changes = changes.as_document().context("an operator's fields")?;
            for (path, value) in changes {
                apply(update, operator, path, value)?;
            }
        }
    }
    Ok(merged)
}

/// Adds a later change of one field.
fn apply(update: &mut Document, operator: &str, path: &str, value: &Bson) -> Result<()> {
    let newer = match (operator, update.get_document_mut(operator)) {
        // What is pushed to the front later stands before what was there.
        ("$push", Ok(pushed)) if pushed.contains_key(path) => {
            let mut items = each(value)?;
            items.extend(each(&pushed[path])?);
            doc! { "$each": items, "$position": 0 }.into()
        }
        ("$set" | "$unset" | "$push", _) => value.clone(),
        _ => bail!("the runtime updates by {operator}, which the benchmark cannot merge"),
    };
    // A field is set or removed, whatever was said last.
    for other in ["$set", "$unset"] {
        if let Ok(fields) = update.get_document_mut(other) {
            fields.remove(path);
        }
    }
    let fields = update
        .entry(operator)
        .or_insert_with(|| Document::new().into());
    fields
        .as_document_mut()
        .context("an operator's fields")?
        .insert(path, newer);
    // An operator without fields is an error on old servers.
    for other in ["$set", "$unset"] {
        if update.get_document(other).is_ok_and(Document::is_empty) {
            update.remove(other);
        }
    }
    Ok(())
}

fn each(push: &Bson) -> Result<Vec<Bson>> {
    let push = push.as_document().context("what is pushed")?;
    Ok(push.get_array("$each")?.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_updates_do_what_they_do_one_by_one() {
        let statement = |rev: i64, update: Document| doc! { "q": { "rev": rev }, "u": update };
        let first = doc! { "$set": { "a": 1, "running": 1, "rev": 2 }, "$push": { "report": { "$each": ["a"], "$position": 0 } } };
        let second = doc! {
            "$set": { "b": 1, "rev": 3 }, "$unset": { "running": "" }, "$push": { "report": { "$each": ["b"], "$position": 0 } },
        };
        let merged = merge(&[statement(1, first), statement(2, second)]).unwrap();
        let both = doc! {
            "$set": { "a": 1, "b": 1, "rev": 3 },
            "$push": { "report": { "$each": ["b", "a"], "$position": 0 } },
            "$unset": { "running": "" },
        };
        assert_eq!(merged, statement(1, both));
    }

    #[test]
    fn an_operator_that_is_not_known_is_not_merged() {
        let statement = doc! { "q": {}, "u": { "$max": { "a": 1 } } };
        assert!(merge(&[statement.clone(), statement]).is_err());
    }
}
