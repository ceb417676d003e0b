//! What the bodies of a milestone can know of the lease under which they run.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use bson::DateTime;
use milestone_core::record::MilestoneId;
use tokio::sync::mpsc::UnboundedSender;

use super::message::Message;
use crate::mongo::trace::WitnessKey;

/// The lease of a milestone that this worker holds, as far as it was acknowledged, and the calls that are made under it.
#[derive(Debug)]
pub(crate) struct Hold {
    id: MilestoneId,
    token: String,
    /// Its end, in milliseconds.
    until: AtomicI64,
    /// How many calls of the toolkit are on the wire. The milestone is not handed back before they have ended.
    calls: AtomicUsize,
    /// Those of them that write once, by what they write.
    writes: Mutex<HashMap<WitnessKey, usize>>,
    tell: UnboundedSender<Message>,
}

impl Hold {
    pub(super) fn new(
        id: MilestoneId,
        token: String,
        until: DateTime,
        tell: UnboundedSender<Message>,
    ) -> Self {
        Self {
            id,
            token,
            until: AtomicI64::new(until.timestamp_millis()),
            calls: AtomicUsize::new(0),
            writes: Mutex::default(),
            tell,
        }
    }

    /// The token of the lease.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// When it ends, as the database has last acknowledged it. Nobody else has taken the milestone before.
    pub(crate) fn until(&self) -> DateTime {
        DateTime::from_millis(self.until.load(Ordering::Acquire))
    }

    /// A renewal was acknowledged.
    pub(super) fn extend(&self, until: DateTime) {
        self.until
            .fetch_max(until.timestamp_millis(), Ordering::AcqRel);
    }

    pub(super) fn has_calls(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0
    }

    /// A call begins; it has ended when the guard is dropped. Whoever calls looks afterwards whether its attempt is over, as the engine says
    /// so before it looks for calls: one of them sees the other, in the one order that all of these have.
    pub(crate) fn call(self: &Arc<Self>) -> CallGuard {
        self.calls.fetch_add(1, Ordering::SeqCst);
        CallGuard {
            hold: Arc::clone(self),
            write: None,
        }
    }

    /// As [`Hold::call`], for a write that may be sent again, by this attempt or by a later one, while an earlier copy is on its way.
    pub(crate) fn write(self: &Arc<Self>, key: &WitnessKey) -> CallGuard {
        let mut guard = self.call();
        *self.writes().entry(key.clone()).or_default() += 1;
        guard.write = Some(key.clone());
        guard
    }

    /// Whether a copy of such a write is on its way.
    pub(crate) fn is_writing(&self, key: &WitnessKey) -> bool {
        self.writes().contains_key(key)
    }

    fn writes(&self) -> MutexGuard<'_, HashMap<WitnessKey, usize>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is on the wire.
#[derive(Debug)]
pub(crate) struct CallGuard {
    hold: Arc<Hold>,
    write: Option<WitnessKey>,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(key) = &self.write {
            let mut writes = self.hold.writes();
            if let Some(count) = writes.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    writes.remove(key);
                }
            }
        }
        if self.hold.calls.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Without the engine nobody waits for it.
            let _ = self.hold.tell.send(Message::Wake {
                id: self.hold.id.clone(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn the_engine_is_told_when_the_last_call_has_ended() {
        let (tell, mut told) = mpsc::unbounded_channel();
        let until = DateTime::from_millis(5);
        let hold = Arc::new(Hold::new("m".into(), "t".to_owned(), until, tell));
        let (first, second) = (hold.call(), hold.call());
        drop(first);
        assert!(hold.has_calls() && told.try_recv().is_err());
        drop(second);
        assert!(!hold.has_calls());
        assert!(matches!(told.try_recv(), Ok(Message::Wake { id }) if id == "m".into()));
    }

    #[test]
    fn the_copies_of_a_write_are_counted() {
        let (tell, _told) = mpsc::unbounded_channel();
        let until = DateTime::from_millis(5);
        let hold = Arc::new(Hold::new("m".into(), "t".to_owned(), until, tell));
        let key = WitnessKey::new(&"m".into(), "debit", "once");
        let other = WitnessKey::new(&"m".into(), "credit", "once");
        let (first, second) = (hold.write(&key), hold.write(&key));
        drop(first);
        assert!(hold.is_writing(&key) && !hold.is_writing(&other));
        drop(second);
        assert!(!hold.is_writing(&key) && !hold.has_calls());
    }

    #[test]
    fn a_late_reply_never_shortens_it() {
        let (tell, _told) = mpsc::unbounded_channel();
        let hold = Hold::new("m".into(), "t".to_owned(), DateTime::from_millis(5), tell);
        hold.extend(DateTime::from_millis(9));
        hold.extend(DateTime::from_millis(7));
        assert_eq!(hold.until(), DateTime::from_millis(9));
    }
}
