//! Transactional actions: what they write to MongoDB is there exactly once, however often they are run.
//!
//! The last write of each transaction is a *witness*, a document that tells what the action has given, under a key that all attempts of the
//! action share. So of any number of transactions, also those of a worker that lost its lease without noticing, one is committed. An attempt
//! that comes later reads the witness first; one that comes at the same time collides with it. Completing the milestone's own document in
//! the transaction would do the same, but would fight with every renewal of its lease.

mod attempt;
mod commit;
mod failures;
mod ground;
mod handle;
mod operation;
mod patience;
mod sessions;
mod undo;

use std::{pin::Pin, sync::Arc};

use bson::Bson;

pub(crate) use self::{ground::Transactions, undo::settle_before_undo};
pub use self::{handle::Tx, operation::Operation};
use crate::action::{ActionFuture, Call, Failure};

/// A future that borrows a transaction: what the body of a transactional action is to the runtime.
pub type TxFuture<'t, T = Result<Bson, Failure>> = Pin<Box<dyn Future<Output = T> + Send + 't>>;

/// The body of a transactional action, which may be run several times in one attempt.
pub(crate) type Body = dyn for<'t> Fn(&'t Call, &'t mut Tx) -> TxFuture<'t> + Send + Sync;

/// Runs an attempt of a transactional action. For generated code.
pub fn transactional(
    call: Call,
    body: for<'t> fn(&'t Call, &'t mut Tx) -> TxFuture<'t>,
) -> ActionFuture {
    Box::pin(async move { attempt::run(&call, &body).await })
}

/// Runs an attempt of a transactional action that is made at run time.
pub(crate) fn transactional_by(call: Call, body: Arc<Body>) -> ActionFuture {
    Box::pin(async move { attempt::run(&call, &*body).await })
}

/// A closure as a body. Without the bound, the compiler does not see that it is one for all lifetimes.
pub(crate) fn boxed(
    body: impl for<'t> Fn(&'t Call, &'t mut Tx) -> TxFuture<'t> + Send + Sync + 'static,
) -> Arc<Body> {
    Arc::new(body)
}
