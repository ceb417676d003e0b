//! Hints that something has changed.

use futures_util::stream;
use tokio::sync::watch;

use super::super::{Hint, Hints};

/// Yields after each change, several at once as one, until the store is dropped.
pub(super) fn stream(changes: watch::Receiver<u64>) -> Hints {
    Box::pin(stream::unfold(changes, async |mut changes| {
        changes.changed().await.ok()?;
        Some((Hint::Changed, changes))
    }))
}
