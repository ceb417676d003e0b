//! Whoever waits for a milestone to end. What this worker ends itself is told at once; for the rest the store is asked, quickly at first.

use std::{collections::HashMap, ops::Bound, sync::Arc, time::Duration};

use milestone_core::record::{MilestoneId, MilestoneRecord, Unreadable};
use tokio::time::Instant;

use super::{Engine, held::Held, message::Message, message::Watcher};
use crate::store::StoreError;

/// How many milestones one look asks for at the most.
const BATCH: usize = 256;

/// The first wait between two looks.
const FIRST_WAIT: Duration = Duration::from_millis(5);

impl Engine {
    pub(super) fn watch(&mut self, id: MilestoneId, reply: Watcher) {
        self.watchers.entry(id).or_default().push(reply);
        self.watch_wait = FIRST_WAIT;
        self.watch_at = Instant::now();
    }

    pub(super) fn send_watch(&mut self) {
        if self.watching || self.watchers.is_empty() || Instant::now() < self.watch_at {
            return;
        }
        self.watchers.retain(|_, watchers| {
            watchers.retain(|watcher| !watcher.is_closed());
            !watchers.is_empty()
        });
        // Each in its turn, so that those that never end do not hide the others.
        let after = self
            .watched
            .take()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.watchers.range((after.clone(), Bound::Unbounded));
        let before = match after {
            Bound::Excluded(last) => Some(self.watchers.range(..=last)),
            _ => None,
        };
        let all = behind.chain(before.into_iter().flatten()).map(|(id, _)| id);
        let ids: Vec<MilestoneId> = all
            .filter(|id| !self.held.contains_key(*id))
            .take(BATCH)
            .cloned()
            .collect();
        self.watched = ids.last().cloned();
        self.watch_at = Instant::now() + self.watch_wait;
        self.watch_wait = (self.watch_wait * 2).min(self.shared.config.poll.max(FIRST_WAIT));
        if ids.is_empty() {
            return;
        }
        self.watching = true;
        let store = Arc::clone(&self.shared.store);
        let asked = ids.clone();
        self.call(async move { store.get(asked).await }, |result| {
            Message::Watched { ids, result }
        });
    }

    pub(super) fn watched(
        &mut self,
        ids: &[MilestoneId],
        result: Result<Vec<Result<MilestoneRecord, Unreadable>>, StoreError>,
    ) {
        self.watching = false;
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                let wait = self.failed_call("a read", &error);
                self.watch_at = self.watch_at.max(Instant::now() + wait);
                return;
            }
        };
        self.successful_call();
        let mut by_id: HashMap<MilestoneId, MilestoneRecord> = HashMap::new();
        let mut unreadable: HashMap<String, Unreadable> = HashMap::new();
        for item in found {
            match item {
                Ok(record) => {
                    by_id.insert(record.id.clone(), record);
                }
                Err(error) => {
                    unreadable.insert(error.id.clone(), error);
                }
            }
        }
        for id in ids {
            match by_id.remove(id) {
                Some(record) if record.state.is_terminal() => {
                    self.tell_watchers(id, &Ok(Some(Arc::new(record))));
                }
                Some(_) => {}
                None => match unreadable.remove(&id.to_string()) {
                    Some(error) => self.tell_watchers(id, &Err(error)),
                    None if self.held.contains_key(id) => {}
                    None => self.tell_watchers(id, &Ok(None)),
                },
            }
        }
    }

    fn tell_watchers(
        &mut self,
        id: &MilestoneId,
        result: &Result<Option<Arc<MilestoneRecord>>, Unreadable>,
    ) {
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            // Whoever does not wait any more need not know.
            let _ = watcher.send(result.clone());
        }
    }

    /// A milestone is no longer held here: those who wait for its end, and a pass that took it, are told.
    pub(super) fn leave(&mut self, held: &Held) {
        let id = held.id().clone();
        let passing = self
            .passes
            .front()
            .is_some_and(|pass| pass.taken.contains_key(&id));
        let ended = held.record.state.is_terminal() && held.is_closing();
        let watched = ended && self.watchers.contains_key(&id);
        if !passing && !watched {
            return;
        }
        let record = Arc::new(held.full_record());
        if passing && let Some(pass) = self.passes.front_mut() {
            pass.done(&record);
        }
        if watched {
            self.tell_watchers(&id, &Ok(Some(record)));
        }
    }
}
