//! Hints of the database. They only shorten a wait: where there are none, or they end, the poll finds everything.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::{
    sync::{mpsc::UnboundedSender, watch},
    time::Instant,
};

use super::{Engine, Shared, message::Message};
use crate::store::{Hint, StoreError, Wanted};

/// The first and the longest wait before hints are asked for again after they have ended.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// What becomes due that soon is waited for; a hint of what is due later is of no use before.
const SOON: Duration = Duration::from_millis(100);

impl Engine {
    /// The database has told something.
    pub(super) fn hinted(&mut self, hint: &Hint) {
        self.shared.counts.hint();
        match hint {
            Hint::Due(at) => {
                let wait = self.shared.clock.wait_until(*at);
                if wait.is_zero() {
                    self.hint_one();
                } else if wait <= SOON {
                    // The clock of whoever wrote it may be a little ahead.
                    self.wake_at(*at);
                }
            }
            Hint::Ended(id) => self.ended_elsewhere(id),
            Hint::Changed => {
                self.hint();
                self.stir_watchers();
            }
        }
    }
}

impl Engine {
    /// Tells which hints are of use now: a client has none for what is due, and what others end is of use only where it is waited for.
    pub(super) fn want_hints(&self) {
        let now = Wanted {
            due: !self.shared.config.client,
            ended: self.watchers.want_hints(Instant::now()),
        };
        self.shared.wanted.send_if_modified(|wanted| {
            let is_other = *wanted != now;
            *wanted = now;
            is_other
        });
    }
}

/// Passes the hints on, as long as the engine lives.
pub(crate) async fn pass_on(shared: Arc<Shared>, tell: UnboundedSender<Message>) {
    let mut wait = AGAIN.0;
    let mut is_told = false;
    let mut wanted = shared.wanted.subscribe();
    loop {
        let began = Instant::now();
        let reason = tokio::select! {
            reason = listen(&shared, &tell, &mut wanted) => reason,
            () = tell.closed() => return,
        };
        let (is_away, reason) = match reason {
            Some(Ok(())) => (false, "the stream of changes has ended".to_owned()),
            // That is told by those calls that do the work.
            Some(Err(error)) => (
                matches!(error, StoreError::Unreachable { .. }),
                error.to_string(),
            ),
            None => {
                tracing::warn!(worker = %shared.worker, poll = ?shared.config.poll, "the database gives no hints, as a standalone server has no change streams: all work is found by polling");
                return;
            }
        };
        if began.elapsed() >= AGAIN.1 {
            (wait, is_told) = (AGAIN.0, false);
            tracing::debug!(worker = %shared.worker, %reason, "hints are asked for again");
        } else if is_told || is_away {
            tracing::debug!(worker = %shared.worker, %reason, "there are still no hints");
        } else {
            is_told = true;
            tracing::warn!(worker = %shared.worker, %reason, poll = ?shared.config.poll, "the database gives no hints now: work is found by polling until it does");
        }
        tokio::select! {
            () = tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)) => {}
            () = tell.closed() => return,
        }
        wait = (wait * 2).min(AGAIN.1);
        // A stream ends where its collection is dropped, and the indexes are gone with it.
        if let Err(error) = shared.store.open().await {
            tracing::debug!(worker = %shared.worker, %error, "it cannot be looked whether the collection is as it must be");
        }
    }
}

/// Passes hints on until they end; nothing if the database has none. Where other ones are wanted, they are asked for anew.
async fn listen(
    shared: &Shared,
    tell: &UnboundedSender<Message>,
    wanted: &mut watch::Receiver<Wanted>,
) -> Option<Result<(), StoreError>> {
    loop {
        let now = *wanted.borrow_and_update();
        if now == Wanted::default() {
            // They end with the engine.
            wanted.changed().await.ok()?;
            continue;
        }
        let mut hints = match shared.store.changes(now).await {
            Ok(hints) => hints?,
            Err(error) => return Some(Err(error)),
        };
        // Of what has happened while nobody listened there will be no hint. Without the engine nobody wants to know.
        let _ = tell.send(Message::Hint(Hint::Changed));
        loop {
            tokio::select! {
                hint = hints.next() => match hint {
                    Some(hint) => {
                        let _ = tell.send(Message::Hint(hint));
                    }
                    None => return Some(Ok(())),
                },
                _ = wanted.changed() => break,
            }
        }
    }
}
