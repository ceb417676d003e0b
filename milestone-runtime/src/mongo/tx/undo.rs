//! Before the undo of a transactional action: was its transaction committed?

use super::{
    ground::{key, patiently, store},
    sessions::end_those_before,
};
use crate::{
    action::{Call, Failure, Seen},
    mongo::trace::Trace,
    store::mongodb::Outcome,
};
use milestone_core::record::Phase;

/// Settles what became of the transaction of an action that is to be undone, where its milestone does not say: it may have been committed
/// just before its worker died, or may still be on its way. From then on it has been committed, and the undo sees its output, or never will be.
pub(crate) async fn settle_before_undo(call: &Call) -> Result<(), Failure> {
    let inner = call.inner();
    let Some(method) = &inner.unsettled else {
        return Ok(());
    };
    let context = call.context();
    let shared = context.shared();
    if shared.store.mongodb().is_none() {
        return Ok(());
    }
    end_those_before(context).await?;
    let key = key(context, Phase::Do);
    let outcome = patiently(shared, |shared| {
        let key = key.clone();
        async move {
            let at = shared.clock.now();
            store(&shared)?.refuse(&key, at).await
        }
    });
    let outcome = outcome.await?;
    shared.traces.left(Trace::Witness(key));
    if let Outcome::Committed(output) = outcome {
        let seen = Seen {
            action: context.action().to_owned(),
            method: method.clone(),
            output,
        };
        // A call is settled once, before its body runs.
        let _ = inner.settled.set(seen);
    }
    Ok(())
}
