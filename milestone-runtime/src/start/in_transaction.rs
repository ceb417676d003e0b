//! Starting a milestone in the transaction of the caller: it is there exactly if what the caller writes beside it is.

use std::sync::Arc;

use milestone_core::record::{MilestoneId, MilestoneRecord};
use mongodb::{
    ClientSession,
    error::{Error as DriverError, TRANSIENT_TRANSACTION_ERROR},
};

use super::{Start, StartError, same_start};
use crate::{
    engine::Shared,
    handle::Handle,
    store::{
        StoreError,
        mongodb::{SessionInsertion, Target, errors::is_duplicate_key},
    },
};

/// Why a milestone was not started in a transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartInError {
    /// It cannot be started, in a transaction or not; or its id is taken by another one. The transaction goes on: no command of it failed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The milestones are not in MongoDB.
    #[error(
        "a milestone is started in a transaction only where the milestones are in MongoDB; they are in {server}"
    )]
    NotMongoDb {
        /// What they are in.
        server: String,
    },
    /// The session has no transaction, so nothing would bind the start to what the caller writes.
    #[error(
        "the session has no transaction in progress: call `session.start_transaction().await` before, or `.start(..)` without `.start_in(..)`"
    )]
    NoTransaction,
    /// The session is one of another cluster.
    #[error(
        "the session is one of another cluster than that of the milestones, {server}: a transaction cannot span two"
    )]
    OtherCluster {
        /// Where the milestones are.
        server: String,
    },
    /// A command of the transaction failed: abort it, unless it is over by that, since it would be committed without the milestone. If
    /// [`StartInError::is_transient`], the whole of it can be run again.
    #[error("the milestone {id} is not started, since the transaction has failed: MongoDB: {}", .error.kind)]
    Transaction {
        /// Its id.
        id: MilestoneId,
        /// What the driver says, with its labels.
        error: DriverError,
    },
}

impl StartInError {
    /// A stable code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Start(error) => error.code(),
            Self::NotMongoDb { .. } => "start_in_not_mongodb",
            Self::NoTransaction => "start_in_no_transaction",
            Self::OtherCluster { .. } => "start_in_other_cluster",
            Self::Transaction { .. } => "start_in_transaction",
        }
    }

    /// Whether the whole transaction, run again, may go well: another one has written the same at the same time, or the server was away.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transaction { error, .. } => {
                error.contains_label(TRANSIENT_TRANSACTION_ERROR) || is_duplicate_key(error)
            }
            _ => false,
        }
    }
}

/// For `and_run` of the driver, which runs the transaction again if the error says so: that of the driver is given on as it is, with its
/// labels, and another one as a custom error, which `get_custom` gives back.
impl From<StartInError> for DriverError {
    fn from(error: StartInError) -> Self {
        match error {
            StartInError::Transaction { error, .. } => error,
            other => Self::custom(other),
        }
    }
}

impl<O> Start<O> {
    /// Starts the milestone in the transaction of a session of the application's own: it is there exactly if that transaction commits, so
    /// it can neither be lost beside what was written nor run for what was not. Elsewhere that takes an outbox.
    ///
    /// ```no_run,standalone_crate
    /// use milestone_runtime::prelude::*;
    /// # #[derive(Clone, Serialize, Deserialize, Milestone)]
    /// # #[milestone(ship)]
    /// # struct Shipment { order: String }
    /// # #[action(idempotent)]
    /// # async fn ship(_: Params<Shipment>) -> Result<(), ActionError> { Ok(()) }
    ///
    /// # async fn main_(runtime: Runtime, client: mongodb::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let orders = client.database("shop").collection("orders");
    /// let mut session = client.start_session().await?;
    /// session.start_transaction().await?;
    /// orders.insert_one(bson::doc! { "_id": "o-1" }).session(&mut session).await?;
    /// let shipment = Shipment { order: "o-1".to_owned() }.start(&runtime).id("o-1").start_in(&mut session).await?;
    /// session.commit_transaction().await?;
    /// shipment.outcome().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The session is one of the application's client, on the cluster of the milestones; database and collection are the runtime's. How
    /// durable it is then, the write concern of the transaction says, which is the caller's: a majority by default. Workers, this one
    /// too, find the milestone after the commit, by a hint or at their next poll; before it, the handle knows of none.
    ///
    /// An id that exists is looked for in the transaction before it is written, so it does not end the transaction: a milestone of the same
    /// type and with equal parameters is attached to, as by an ordinary start.
    ///
    /// # Errors
    /// [`StartInError`] says of each whether the transaction goes on. One that is transient is for whoever runs the transaction again.
    pub async fn start_in(self, session: &mut ClientSession) -> Result<Handle<O>, StartInError> {
        let new = self.new?;
        let shared = &self.runtime.inner.shared;
        if self.runtime.inner.tell.is_closed() {
            return Err(StartError::Closed.into());
        }
        if !shared.config.client {
            self.runtime.warn_of_unknown_methods(&new);
        }
        let id = new.id.clone();
        let record = MilestoneRecord::new(new, shared.clock.now(), &shared.config.limits);
        let record = record.map_err(StartError::Invalid)?;
        let target = target(shared)
            .await
            .ok_or_else(|| StartInError::NotMongoDb {
                server: self.runtime.server().to_owned(),
            })?;
        if !is_in_transaction(session).await {
            return Err(StartInError::NoTransaction);
        }
        if target.is_elsewhere(&session.client()).await {
            return Err(StartInError::OtherCluster {
                server: self.runtime.server().to_owned(),
            });
        }
        match target.insert(&record, session).await {
            Ok(SessionInsertion::Inserted) => {}
            Ok(SessionInsertion::Exists(Ok(existing))) => {
                same_start(&existing, &record).map_err(|conflict| StartError::Conflict {
                    id: id.clone(),
                    conflict,
                })?;
            }
            Ok(SessionInsertion::Exists(Err(unreadable))) => {
                return Err(StartError::Unreadable(unreadable).into());
            }
            Ok(SessionInsertion::Refused(reason)) => {
                let error = Arc::new(StoreError::Refused { reason });
                return Err(StartError::NotStored { id, error }.into());
            }
            Err(error) => return Err(StartInError::Transaction { id, error }),
        }
        Ok(Handle::new(self.runtime, id, self.decode))
    }
}

/// Where the milestones are, asked on the executor to which the client of the store belongs.
async fn target(shared: &Arc<Shared>) -> Option<Target> {
    let asked = Arc::clone(shared);
    let target = shared.io.spawn(async move {
        let store = asked.store.mongodb()?;
        store.target().await.ok()
    });
    target.await.ok().flatten()
}

/// The driver does not tell whether a session has a transaction, but starts none beside it. One that was started to find out is
/// ended at once, which sends nothing.
async fn is_in_transaction(session: &mut ClientSession) -> bool {
    match session.start_transaction().await {
        Ok(()) => {
            // It has just begun, so this cannot fail.
            let _ = session.abort_transaction().await;
            false
        }
        Err(error) => error.kind.to_string().contains("already in progress"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_drivers_comes_back_from_the_driver() {
        let error = DriverError::from(StartInError::NoTransaction);
        let custom = error.get_custom::<StartInError>().expect("it is ours");
        assert!(matches!(custom, StartInError::NoTransaction));
        assert!(!StartInError::NoTransaction.is_transient());
    }
}
