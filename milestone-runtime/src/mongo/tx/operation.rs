//! The operations of the driver that run in a transaction.

use bson::{Bson, Document};
use futures_util::TryStreamExt as _;
use mongodb::{
    ClientSession,
    action::{
        Aggregate, CountDocuments, Delete, Distinct, Find, FindOne, FindOneAndDelete,
        FindOneAndReplace, FindOneAndUpdate, InsertMany, InsertOne, ReplaceOne, RunCommand, Update,
    },
    error::Error,
    results::{DeleteResult, InsertManyResult, InsertOneResult, UpdateResult},
};
use serde::de::DeserializeOwned;

use super::TxFuture;

mod sealed {
    pub trait Sealed {}
}

/// An operation of the driver that can run in a transaction, see [`Tx::run`](super::Tx::run): what `insert_one`, `update_many`, `find` and
/// their like give before they are awaited.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot run in a transaction by `tx.run(..)`",
    label = "not an operation for a transaction",
    note = "give it the operation before it is awaited, `tx.run(accounts.insert_one(account)).await?`, without a session of its own; for others there is `tx.session()`"
)]
pub trait Operation<'t>: sealed::Sealed + Send {
    /// What it gives.
    type Output: 't;

    /// Runs it in a session.
    fn run_in(self, session: &'t mut ClientSession) -> TxFuture<'t, Result<Self::Output, Error>>;
}

macro_rules! operations {
    ($($operation:ident => $output:ty),+ $(,)?) => {$(
        impl sealed::Sealed for $operation<'_> {}

        impl<'t> Operation<'t> for $operation<'t> {
            type Output = $output;

            fn run_in(self, session: &'t mut ClientSession) -> TxFuture<'t, Result<$output, Error>> {
                Box::pin(self.session(session).into_future())
            }
        }
    )+};
}

operations! {
    InsertOne => InsertOneResult,
    InsertMany => InsertManyResult,
    Update => UpdateResult,
    ReplaceOne => UpdateResult,
    Delete => DeleteResult,
    CountDocuments => u64,
    Distinct => Vec<Bson>,
    RunCommand => Document,
}

macro_rules! finds {
    ($($operation:ident),+ $(,)?) => {$(
        impl<T: Send + Sync> sealed::Sealed for $operation<'_, T> {}

        impl<'t, T: DeserializeOwned + Send + Sync + 't> Operation<'t> for $operation<'t, T> {
            type Output = Option<T>;

            fn run_in(self, session: &'t mut ClientSession) -> TxFuture<'t, Result<Option<T>, Error>> {
                Box::pin(self.session(session).into_future())
            }
        }
    )+};
}

finds!(
    FindOne,
    FindOneAndUpdate,
    FindOneAndReplace,
    FindOneAndDelete
);

impl<T: Send + Sync> sealed::Sealed for Find<'_, T> {}

impl<'t, T: DeserializeOwned + Send + Sync + 't> Operation<'t> for Find<'t, T> {
    type Output = Vec<T>;

    fn run_in(self, session: &'t mut ClientSession) -> TxFuture<'t, Result<Vec<T>, Error>> {
        Box::pin(async move {
            let mut cursor = self.session(&mut *session).await?;
            cursor.stream(session).try_collect().await
        })
    }
}

impl<T> sealed::Sealed for Aggregate<'_, mongodb::action::ImplicitSession, T> {}

impl<'t, T: DeserializeOwned + Send + Sync + 't> Operation<'t>
    for Aggregate<'t, mongodb::action::ImplicitSession, T>
{
    type Output = Vec<T>;

    fn run_in(self, session: &'t mut ClientSession) -> TxFuture<'t, Result<Vec<T>, Error>> {
        Box::pin(async move {
            let mut cursor = self.session(&mut *session).await?;
            cursor.stream(session).try_collect().await
        })
    }
}
