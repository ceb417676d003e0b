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
    fn lacks(&self, id: &[u8], now: Instant) -> bool {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get(id).is_none_or(|since| is_old(*since, now))
    }

    /// It is noted from now on. Those that are to be noted again go: the driver may have given them up long ago.
    fn add(&self, id: Vec<u8>, now: Instant) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, since| !is_old(*since, now));
        noted.insert(id, now);
    }
}

fn is_old(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) > NOTED_FOR / 2
}

/// Notes a session before its first transaction.
pub(super) async fn note(ground: &Ground<'_>, session: &ClientSession) -> Result<(), Failure> {
    let id = session.id().clone();
    let Some(bytes) = bytes(&id) else {
        return Ok(());
    };
    let shared = ground.context.shared();
    let noted = &shared.transactions.noted;
    let now = Instant::now();
    if !noted.lacks(&bytes, now) {
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
    noted.add(bytes, now);
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
    let Some((worker, taken)) = context.abandoned_by() else {
        return Ok(());
    };
    let shared = context.shared();
    let ended = patiently(shared, |shared| {
        let (worker, taken) = (worker.to_owned(), *taken);
        async move {
            let now = shared.clock.now();
            let ended = store(&shared)?.end_sessions(&worker, taken, now).await;
            match ended {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_too_long_ago_is_noted_again_and_forgotten() {
        let (noted, now) = (Noted::default(), Instant::now());
        noted.add(vec![1], now);
        let later = now + NOTED_FOR / 2;
        assert!(!noted.lacks(&[1], later));
        assert!(noted.lacks(&[2], later));
        noted.add(vec![2], later);
        let later = later + std::time::Duration::from_secs(1);
        assert!(noted.lacks(&[1], later));
        noted.add(vec![3], later);
        let left = noted.0.into_inner().unwrap();
        assert!(left.len() == 2 && !left.contains_key(&vec![1]), "{left:?}");
    }
}
