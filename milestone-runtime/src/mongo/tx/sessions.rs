//! Whose transactions are in which session, so that those of a worker that died can be ended.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use bson::spec::BinarySubtype;
use mongodb::ClientSession;

use super::ground::{Ground, patiently, store};
use crate::{
    action::{Context, Failure},
    store::{StoreError, mongodb::NOTED_FOR},
};

/// The sessions of this worker that are noted. The driver uses a session again and again, so there are about as many as transactions at once.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<HashMap<Vec<u8>, Instant>>);

impl Noted {
    /// Whether a session must be noted before it is used.
    fn lacks(&self, id: &[u8]) -> bool {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted
            .get(id)
            .is_none_or(|since| since.elapsed() > NOTED_FOR / 2)
    }

    fn add(&self, id: Vec<u8>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.insert(id, Instant::now());
    }
}

/// Notes a session before its first transaction.
pub(super) async fn note(ground: &Ground<'_>, session: &ClientSession) -> Result<(), Failure> {
    let id = session.id().clone();
    let Some(bytes) = bytes(&id) else {
        return Ok(());
    };
    let shared = ground.context.shared();
    let noted = &shared.transactions.noted;
    if !noted.lacks(&bytes) {
        return Ok(());
    }
    let stored = patiently(shared, |shared| {
        let id = id.clone();
        async move {
            let at = shared.clock.now();
            store(&shared)?.note_session(&id, &shared.worker, at).await
        }
    });
    stored.await?;
    noted.add(bytes);
    Ok(())
}

fn bytes(id: &bson::Document) -> Option<Vec<u8>> {
    match id.get("id") {
        Some(bson::Bson::Binary(binary)) if binary.subtype == BinarySubtype::Uuid => {
            Some(binary.bytes.clone())
        }
        _ => None,
    }
}

/// Ends the transactions of the worker whose attempt came before this one. One that was committed has left its witness by then; one that was
/// not holds no document any longer. A worker that lives all the same runs what it had again.
pub(super) async fn end_those_before(context: &Context) -> Result<(), Failure> {
    let Some(worker) = context.abandoned_by() else {
        return Ok(());
    };
    let shared = context.shared();
    let ended = patiently(shared, |shared| {
        let worker = worker.to_owned();
        async move {
            match store(&shared)?.end_sessions(&worker).await {
                Err(error @ StoreError::Unreachable { .. }) => Err(error),
                Err(error) => {
                    // Without the right to do so, the server ends them when their time is over.
                    tracing::warn!(%error, dead = worker, "the transactions of a worker that is gone cannot be ended, and may keep others waiting for a minute");
                    Ok(0)
                }
                ended => ended,
            }
        }
    });
    let ended = ended.await?;
    if ended > 0 {
        tracing::debug!(
            dead = worker,
            sessions = ended,
            "the sessions of a worker that is gone were ended"
        );
    }
    Ok(())
}
