//! Between the typed record and the stored document.

use bson::{Bson, Document};

use super::{ActionKind, MilestoneRecord, Order, Phase, SCHEMA};

/// A stored document that this version cannot read. It is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the milestone {id} cannot be read: {reason}")]
pub struct Unreadable {
    /// Its `_id`, as far as it could be read.
    pub id: String,
    /// Why.
    pub reason: String,
}

impl MilestoneRecord {
    /// Reads a stored document.
    ///
    /// # Errors
    /// [`Unreadable`] if a newer version wrote it, or somebody changed it by hand so that it makes no sense.
    pub fn from_document(mut document: Document) -> Result<Self, Unreadable> {
        let id = document
            .get("_id")
            .map_or_else(|| "without _id".to_owned(), id_text);
        let unreadable = |reason: String| Unreadable {
            id: id.clone(),
            reason,
        };
        match document.get("schema").and_then(as_i64) {
            Some(schema) if schema > i64::from(SCHEMA) => {
                return Err(unreadable(format!(
                    "its schema is {schema}, this version reads {SCHEMA} and lower: a newer one wrote it"
                )));
            }
            Some(_) => {}
            None => return Err(unreadable("it has no `schema`".to_owned())),
        }
        let values = Values::take_from(&mut document);
        let mut record: Self = bson::deserialize_from_document(document)
            .map_err(|error| unreadable(error.to_string()))?;
        values.put_into(&mut record);
        check_counts(&record).map_err(unreadable)?;
        if record.actions.is_empty() {
            return Err(unreadable("it has no actions".to_owned()));
        }
        for (index, action) in record.actions.iter().enumerate() {
            let runs = action
                .method
                .as_ref()
                .is_some_and(|method| !method.is_empty());
            if runs != (action.kind == ActionKind::Action) {
                return Err(unreadable(format!(
                    "`actions.{index}` needs a method to be an action, and none to be a fork"
                )));
            }
            if action.after.iter().any(|after| *after as usize >= index) {
                return Err(unreadable(format!(
                    "`actions.{index}.after` names an action that does not come before it"
                )));
            }
        }
        Ok(record)
    }

    /// Reads a stored document from its bytes.
    ///
    /// # Errors
    /// As [`MilestoneRecord::from_document`].
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Unreadable> {
        // Not by serde: see `Values`.
        let document = Document::from_reader(bytes).map_err(|error| Unreadable {
            id: "unknown".to_owned(),
            reason: error.to_string(),
        })?;
        Self::from_document(document)
    }

    /// The document to store.
    ///
    /// # Errors
    /// If BSON cannot hold it. That is so for none that [`crate::machine`] made.
    pub fn to_document(&self) -> Result<Document, bson::error::Error> {
        let mut rest = self.clone();
        let values = Values::take_out(&mut rest);
        let mut document = bson::serialize_to_document(&rest)?;
        values.put_back(&mut document);
        Ok(document)
    }

    /// The bytes to store: those of [`MilestoneRecord::to_document`], without the document between.
    ///
    /// # Errors
    /// As [`MilestoneRecord::to_document`].
    pub fn to_vec(&self) -> Result<Vec<u8>, bson::error::Error> {
        // By serde, which writes values of users as they are; it is only on the way back that it takes some for extended JSON.
        bson::serialize_to_vec(self)
    }
}

/// What counts can be counted on. Nothing that counts comes near the end of its numbers by itself.
fn check_counts(record: &MilestoneRecord) -> Result<(), String> {
    const MOST: i64 = i64::MAX / 4;
    let check = |field: &str, count: i64| {
        if (0..=MOST).contains(&count) {
            return Ok(());
        }
        Err(format!(
            "its `{field}` is {count}, which nothing counts up to"
        ))
    };
    check("rev", record.rev)?;
    check("epoch", record.epoch)?;
    check("mail", record.mail)?;
    check("losses", record.losses)?;
    check("reportDropped", record.report_dropped)?;
    for (index, action) in record.actions.iter().enumerate() {
        for tries in Phase::ALL
            .into_iter()
            .filter_map(|phase| action.tries(phase))
        {
            check(&format!("actions.{index}.attempts"), tries.attempts)?;
            check(&format!("actions.{index}.failures"), tries.failures)?;
            if let Some(running) = tries.running {
                check(&format!("actions.{index}.running.number"), running.number)?;
                check(&format!("actions.{index}.running.epoch"), running.epoch)?;
            }
        }
    }
    record
        .report
        .iter()
        .try_for_each(|attempt| check("report.number", attempt.number))
}

/// The values of users. They go past serde, which takes `{ "$oid": .. }`, `{ "$date": .. }` and their like for extended JSON, and would
/// change them or fail: they are opaque.
#[derive(Default)]
struct Values {
    parameters: Option<Bson>,
    outputs: Vec<(usize, Bson)>,
    commands: Vec<(usize, Bson)>,
}

impl Values {
    fn take_out(record: &mut MilestoneRecord) -> Self {
        let take = |value: &mut Bson| std::mem::replace(value, Bson::Null);
        let actions = record.actions.iter_mut().enumerate();
        let outputs =
            actions.filter_map(|(index, action)| Some((index, take(action.output.as_mut()?))));
        let commands = record.inbox.iter_mut().enumerate();
        let commands = commands.filter_map(|(index, command)| match &mut command.order {
            Order::Resolve { output, .. } => Some((index, take(output))),
            _ => None,
        });
        Self {
            parameters: Some(take(&mut record.parameters)),
            outputs: outputs.collect(),
            commands: commands.collect(),
        }
    }

    fn put_into(self, record: &mut MilestoneRecord) {
        if let Some(value) = self.parameters {
            record.parameters = value;
        }
        for (index, value) in self.outputs {
            if let Some(action) = record.actions.get_mut(index) {
                action.output = Some(value);
            }
        }
        for (index, value) in self.commands {
            if let Some(Order::Resolve { output, .. }) = record
                .inbox
                .get_mut(index)
                .map(|command| &mut command.order)
            {
                *output = value;
            }
        }
    }

    fn take_from(document: &mut Document) -> Self {
        let mut values = Self::default();
        values.exchange(document);
        values
    }

    fn put_back(mut self, document: &mut Document) {
        self.exchange(document);
    }

    /// Exchanges what is here with what stands in the document: nulls, in one of the two. What is nowhere in the document stays nowhere.
    fn exchange(&mut self, document: &mut Document) {
        if let Some(slot) = document.get_mut("parameters") {
            let value = self.parameters.take().unwrap_or(Bson::Null);
            self.parameters = Some(std::mem::replace(slot, value));
        }
        exchange_each(&mut self.outputs, document, "actions", |action| {
            action.get_mut("output")
        });
        exchange_each(&mut self.commands, document, "inbox", |command| {
            command
                .get_document_mut("order")
                .and_then(|order| order.get_document_mut("resolve"))
                .ok()?
                .get_mut("output")
        });
    }
}

fn exchange_each(
    values: &mut Vec<(usize, Bson)>,
    document: &mut Document,
    list: &str,
    slot_of: impl Fn(&mut Document) -> Option<&mut Bson>,
) {
    let Ok(items) = document.get_array_mut(list) else {
        return;
    };
    let mut given = std::mem::take(values).into_iter().peekable();
    for (index, item) in items.iter_mut().enumerate() {
        let Some(slot) = item.as_document_mut().and_then(&slot_of) else {
            continue;
        };
        let value = given.next_if(|(at, _)| *at == index);
        let value = value.map_or(Bson::Null, |(_, value)| value);
        values.push((index, std::mem::replace(slot, value)));
    }
}

fn id_text(id: &Bson) -> String {
    match id {
        Bson::ObjectId(id) => id.to_string(),
        Bson::String(id) => id.clone(),
        other => other.to_string(),
    }
}

fn as_i64(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(value) => Some(i64::from(*value)),
        Bson::Int64(value) => Some(*value),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "mongosh writes small whole numbers as doubles"
        )]
        Bson::Double(value) => Some(*value as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
