//! The transaction as an action has it.

use std::fmt;

use mongodb::{
    ClientSession, Collection, Database,
    error::{Error, TRANSIENT_TRANSACTION_ERROR},
};

use super::{TxFuture, operation::Operation};

/// The transaction of an action: an action under `#[action(transactional)]` takes it as `&mut Tx`.
///
/// It is begun before the action's body and committed once the body has returned `Ok`, together with a note of what it gave. What the body
/// writes in it is there exactly once, however often it is run; if it returns an error or panics, nothing of it is. Others may come in between: then
/// the body is run again, with its arguments taken anew, within the same attempt. So it should do nothing else that others can see, such as
/// calls of other services.
///
/// ```standalone_crate
/// use bson::{Document, doc};
/// use milestone_runtime::prelude::*;
///
/// #[derive(Serialize, Deserialize, Milestone)]
/// #[milestone(pay)]
/// struct Transfer { from: String, to: String, amount: i64 }
///
/// #[action(transactional)]
/// async fn pay(Params(t): Params<Transfer>, tx: &mut Tx) -> Result<(), ActionError> {
///     let accounts = tx.collection::<Document>("accounts");
///     let covered = doc! { "_id": t.from, "balance": { "$gte": t.amount } };
///     let taken = tx.run(accounts.update_one(covered, doc! { "$inc": { "balance": -t.amount } })).await?;
///     if taken.matched_count == 0 {
///         return Err(ActionError::fatal("there is not enough on the account"));
///     }
///     let given = tx.run(accounts.update_one(doc! { "_id": t.to }, doc! { "$inc": { "balance": t.amount } })).await?;
///     if given.matched_count == 0 {
///         return Err(ActionError::fatal("there is no such account")); // and nothing is taken
///     }
///     Ok(())
/// }
/// ```
///
/// The collections must be those of the client that the transaction is of: [`Tx::collection`] gives them, as does the client that the
/// builder was given by [`RuntimeBuilder::mongo_client`](crate::RuntimeBuilder::mongo_client).
pub struct Tx {
    pub(super) session: ClientSession,
    database: Database,
    /// The first error that it has seen: from then on it cannot be committed.
    pub(super) seen: Option<Error>,
}

impl Tx {
    pub(super) const fn new(session: ClientSession, database: Database) -> Self {
        Self {
            session,
            database,
            seen: None,
        }
    }

    /// Runs an operation of the driver in the transaction: `tx.run(accounts.insert_one(account)).await?`. What gives a cursor outside of a
    /// transaction gives all documents as a `Vec`.
    ///
    /// # Errors
    /// What the driver says. Whatever the body makes of it, the transaction is then not committed: if it is an error that passes, the body is
    /// run again, else the attempt fails.
    // Not an `async fn`: where it is awaited, the compiler would have to prove that the operation fits any lifetime.
    pub fn run<'t, O: Operation<'t>>(
        &'t mut self,
        operation: O,
    ) -> TxFuture<'t, Result<O::Output, Error>> {
        let Self { session, seen, .. } = self;
        watched(operation.run_in(session), seen)
    }

    /// The driver's session, for what [`Tx::run`] cannot do: a bulk write of the client, say, or a cursor that is read as it goes.
    ///
    /// An error of it must be returned, or told by [`Tx::note`]: a server that has refused one operation of a transaction has aborted it,
    /// and a body that goes on all the same fails. The transaction must be neither committed nor aborted here: an action that does so fails
    /// for good.
    pub fn session(&mut self) -> &mut ClientSession {
        &mut self.session
    }

    /// Tells of an error of an operation that went by [`Tx::session`]: the transaction is not committed, as with one of [`Tx::run`].
    pub fn note(&mut self, error: &Error) {
        remember(&mut self.seen, error);
    }

    /// The database of the milestones, by the client of the transaction.
    pub const fn database(&self) -> &Database {
        &self.database
    }

    /// A collection of the database of the milestones, by the client of the transaction. Those of other databases are found with
    /// `tx.database().client()`.
    pub fn collection<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        self.database.collection(name)
    }
}

fn watched<'t, T: 't>(
    operation: TxFuture<'t, Result<T, Error>>,
    seen: &'t mut Option<Error>,
) -> TxFuture<'t, Result<T, Error>> {
    Box::pin(async move {
        let result = operation.await;
        if let Err(error) = &result {
            remember(seen, error);
        }
        result
    })
}

/// The first one counts: those behind it only say that the transaction is over.
fn remember(seen: &mut Option<Error>, error: &Error) {
    seen.get_or_insert_with(|| error.clone());
}

/// Whether the whole transaction may succeed if it is run again.
pub(super) fn is_transient(error: &Error) -> bool {
    error.contains_label(TRANSIENT_TRANSACTION_ERROR)
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("database", &self.database.name())
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
