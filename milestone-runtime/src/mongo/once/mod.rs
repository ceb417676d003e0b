//! Writes that are applied exactly once however often their action runs: [`Context::once`].
//!
//! The write leaves a marker on the document in the same atomic step, and is not applied where its marker is. It is bounded in time by
//! the lease, so the server itself refuses it when it comes late from a worker that has lost its milestone. Once the marker is of no more use,
//! it is removed. The idea of a list of pending transactions on the document is that of MongoDB's guide to two-phase commits.

mod cluster;
mod command;
mod error;
mod fence;
mod insert;
mod reply;
mod undo;
mod update;
mod writer;

use bson::{Bson, Document};
use milestone_core::record::Phase;
use mongodb::{Collection, options::UpdateModifications};

pub(crate) use self::cluster::Known;
use self::{command::made_id, writer::Writer};
pub use self::{
    error::{OnceError, Target},
    insert::{InsertOne, Inserted},
    undo::{DeleteOne, TakeBack, Undo, Undone},
    update::UpdateOne,
};
use super::trace::Marker;
use crate::action::Context;

/// How many markers a document may have: so many writes to one document may be of milestones that are not over, or have not been for one
/// and a half times the clock skew. Above it a call waits, and then fails with [`OnceError::Crowded`].
pub const MOST_MARKERS: usize = 500;

/// When a write was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// By this call.
    Now,
    /// Before: by an earlier attempt, or by this one though its reply was lost.
    Before,
}

impl Context {
    /// A write to a document of a MongoDB collection that is applied exactly once, however often this action runs and whatever becomes of
    /// its workers. The collection must be in the cluster of the milestones.
    ///
    /// What it costs and where it ends is told in the guide, `docs/guide/once.md`.
    ///
    /// ```standalone_crate
    /// use milestone_runtime::{mongo::OnceError, prelude::*};
    /// use mongodb::{Collection, bson::{Document, doc}};
    ///
    /// #[derive(Serialize, Deserialize, Milestone)]
    /// #[milestone(debit -> credit)]
    /// struct Transfer { from: String, to: String, amount: i64 }
    ///
    /// #[action(idempotent, undo = refund)]
    /// async fn debit(Params(t): Params<Transfer>, accounts: State<Collection<Document>>, cx: Context) -> Result<(), ActionError> {
    ///     let enough = doc! { "_id": &t.from, "balance": { "$gte": t.amount } };
    ///     match cx.once(&accounts).update_one(enough, doc! { "$inc": { "balance": -t.amount } }).await {
    ///         Err(OnceError::Unmatched { .. }) => Err(ActionError::fatal("there is not enough money")),
    ///         written => written.map(|_| ()).map_err(ActionError::from),
    ///     }
    /// }
    ///
    /// #[action(idempotent)]
    /// async fn refund(Params(t): Params<Transfer>, accounts: State<Collection<Document>>, cx: Context) -> Result<(), ActionError> {
    ///     let account = doc! { "_id": &t.from };
    ///     cx.once(&accounts).undo().update_one(account, doc! { "$inc": { "balance": t.amount } }).await?;
    ///     Ok(())
    /// }
    ///
    /// #[action(idempotent)]
    /// async fn credit(Params(t): Params<Transfer>, accounts: State<Collection<Document>>, cx: Context) -> Result<(), ActionError> {
    ///     cx.once(&accounts).update_one(doc! { "_id": &t.to }, doc! { "$inc": { "balance": t.amount } }).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn once<T: Send + Sync>(&self, collection: &Collection<T>) -> Once {
        Once {
            cx: self.clone(),
            collection: collection.clone_with_type(),
            label: String::new(),
        }
    }
}

/// What is to be written once: see [`Context::once`].
#[derive(Clone, Debug)]
#[must_use = "nothing is written before one of its writes is awaited"]
pub struct Once {
    cx: Context,
    collection: Collection<Document>,
    label: String,
}

impl Once {
    /// Tells this write from others of the same action to the same document, or, for documents that are inserted without an `_id`, to the
    /// same collection. The same in every attempt.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Updates the document that the filter names by its `_id`, a plain value; the filter may have further conditions. The update is
    /// one of operators, or a pipeline of `$set`, `$addFields` and `$unset`.
    ///
    /// # Errors
    /// [`OnceError::Missing`] if there is no such document, [`OnceError::Unmatched`] if it does not meet the other conditions, and
    /// others, see there.
    pub fn update_one(self, filter: Document, update: impl Into<UpdateModifications>) -> UpdateOne {
        UpdateOne::new(self, filter, update.into())
    }

    /// Inserts a document. Without an `_id` it gets an `ObjectId` that is the same in every attempt, and no marker; with one, a marker
    /// tells it from a document that somebody else inserted.
    ///
    /// A document that is deleted before its action has completed is inserted again by the next attempt.
    ///
    /// # Errors
    /// [`OnceError::Exists`] if somebody else's document has the `_id`, and others, see there.
    pub fn insert_one(self, document: Document) -> InsertOne {
        InsertOne::new(self, document)
    }

    /// In the undo of an action: takes the write back that the action made to the same document with the same label, exactly if it was
    /// applied. If it was not, it never will be.
    pub fn undo(self) -> Undo {
        let action = self.cx.action().to_owned();
        self.undo_of(action)
    }

    /// As [`Once::undo`], of another action, by its name in the graph.
    pub fn undo_of(self, action: impl Into<String>) -> Undo {
        Undo::new(self, action.into())
    }

    /// The marker of the write of an action; of this one, if it is not named.
    fn marker(&self, action: Option<&str>, undone: bool) -> Marker {
        Marker {
            milestone: self.cx.milestone_id().clone(),
            started: self.cx.created_at(),
            action: action.unwrap_or(self.cx.action()).to_owned(),
            label: self.label.clone(),
            undone,
        }
    }

    /// The `_id` of a document that is inserted without one.
    fn made_id(&self, action: &str) -> Bson {
        made_id(
            self.cx.milestone_id(),
            self.cx.created_at(),
            action,
            &self.label,
        )
        .into()
    }

    /// An ordinary write in this phase: what an undo writes is marked as such.
    fn own_marker(&self) -> Result<Marker, OnceError> {
        match self.cx.phase() {
            Phase::Verify => Err(OnceError::Phase {
                reason: "a verify only looks: it writes nothing with `cx.once(..)`",
            }),
            phase => Ok(self.marker(None, phase == Phase::Undo)),
        }
    }

    fn writer(self, id: Bson) -> Writer {
        Writer::new(self.cx, self.collection, id)
    }

    fn collection_name(&self) -> String {
        self.collection.namespace().to_string()
    }
}

/// What cannot be used as the filter of a write to a collection.
fn bad_filter(once: &Once, reason: &'static str) -> OnceError {
    OnceError::Filter {
        collection: once.collection_name(),
        reason,
    }
}
