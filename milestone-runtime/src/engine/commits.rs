//! Patches on their way. While a command is on the wire the next batch collects; a lone patch waits for nothing. A patch whose fate is
//! unknown is sent again, the same to the byte, before anything else of its milestone.

use std::{sync::Arc, time::Duration};

use milestone_core::{
    machine::Event,
    record::{AttemptError, AttemptKind, MilestoneId, MilestoneRecord},
};

use super::{
    Engine,
    held::{Change, Held},
    message::{Message, Sent},
    method_of,
};
use crate::store::{Commit, Committed, StoreError};

/// How often in a row a milestone's changes may be refused before it is given up.
const REFUSALS: u32 = 8;

impl Engine {
    pub(super) fn send_commits(&mut self) {
        let batching = self.shared.store.batching();
        while self.commits.is_free_for(self.dirty.len(), batching) {
            let mut batch = Vec::new();
            while batch.len() < batching.writes {
                let Some(id) = self.dirty.pop_front() else {
                    break;
                };
                let Some(held) = self.held.get_mut(&id) else {
                    continue;
                };
                held.dirty = false;
                if let Some(commit) = held.take_commit() {
                    batch.push(commit);
                }
            }
            if batch.is_empty() {
                return;
            }
            self.send_batch(batch);
        }
    }

    pub(super) fn committed(
        &mut self,
        sent: Vec<Sent>,
        result: Result<Vec<Committed>, StoreError>,
    ) {
        self.commits.back(sent.len());
        let mut unknown = Vec::new();
        match result {
            Ok(results) => {
                let mut why = None;
                for (sent, result) in sent.into_iter().zip(results) {
                    match result {
                        Committed::Unknown(error) => {
                            why = Some(error);
                            unknown.push(sent);
                        }
                        result => self.settle(&sent, result),
                    }
                }
                if let Some(error) = why {
                    self.retry_commits(unknown, &error);
                } else {
                    self.successful_call();
                }
            }
            Err(error) => self.retry_commits(sent, &error),
        }
    }

    /// Nobody knows what became of them, so they are sent again after a while.
    fn retry_commits(&mut self, sent: Vec<Sent>, error: &dyn std::fmt::Display) {
        let wait = self.failed_call("a commit", error);
        self.later(wait, Message::CommitAgain { sent });
    }

    fn settle(&mut self, sent: &Sent, result: Committed) {
        let id = &sent.id;
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if !held
            .in_flight
            .as_ref()
            .is_some_and(|commit| sent.is(commit))
        {
            return;
        }
        match result {
            Committed::Done => self.done(id),
            Committed::Lost => self.lost(id),
            Committed::Mail(record) => {
                let flying = std::mem::take(&mut held.flying);
                let pending = std::mem::take(&mut held.pending);
                self.plan_anew(id, *record, vec![flying, pending], false);
            }
            Committed::Unknown(_) => {}
            Committed::Refused(error) if held.refusals >= REFUSALS => {
                tracing::error!(milestone = %id, %error, "the database refuses every change of a milestone; it is left until its lease ends");
                self.lost(id);
            }
            Committed::Refused(error) => {
                held.refusals += 1;
                tracing::error!(milestone = %id, %error, "the database refuses a change; its parts are sent one by one");
                self.fetch(id, true);
            }
        }
    }

    /// The same commits again, byte for byte.
    pub(super) fn commit_again(&mut self, sent: &[Sent]) {
        let commits = sent.iter().filter_map(|sent| {
            let commit = self.held.get(&sent.id)?.in_flight.as_ref()?;
            sent.is(commit).then(|| commit.clone())
        });
        let batch: Vec<_> = commits.collect();
        if !batch.is_empty() {
            self.send_batch(batch);
        }
    }

    fn send_batch(&mut self, batch: Vec<Commit>) {
        self.commits.sent(batch.len());
        let sent = batch.iter().map(Sent::from).collect();
        let store = Arc::clone(&self.shared.store);
        self.call(async move { store.commit(batch).await }, |result| {
            Message::Committed { sent, result }
        });
    }

    fn done(&mut self, id: &MilestoneId) {
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        let Some(commit) = held.in_flight.take() else {
            return;
        };
        held.rev = commit.rev + 1;
        held.record.rev = held.rev;
        held.refusals = 0;
        let begins = std::mem::take(&mut held.flying).begins;
        if commit.patch.releases() {
            self.released(id);
            return;
        }
        self.start_bodies(id, begins);
        self.next_replay(id);
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if !held.pending.patch.is_empty() && !held.dirty {
            held.dirty = true;
            self.dirty.push_back(id.clone());
        }
    }

    /// The milestone was handed back, or has ended.
    fn released(&mut self, id: &MilestoneId) {
        let Some(held) = self.held.remove(id) else {
            return;
        };
        if let Some(next) = &held.record.next
            && held
                .record
                .due
                .iter()
                .any(|due| self.shared.registry.has(&due.method))
        {
            self.wake_at(next.at);
        }
        self.leave(held);
    }

    /// The lease is another's, or the milestone is gone: its actions are cancelled, and their results do not count.
    pub(super) fn lost(&mut self, id: &MilestoneId) {
        let Some(held) = self.held.remove(id) else {
            return;
        };
        tracing::warn!(milestone = %id, kind = held.record.kind, worker = %self.shared.worker, "the lease is lost; its actions are cancelled");
        for serial in held.bodies.values() {
            self.give_up(*serial);
        }
        self.send_unheard(&held);
        self.release_begins(&held, &held.flying);
        self.release_begins(&held, &held.pending);
        for (task, _) in &held.waiting {
            self.places.release(method_of(&held, *task));
        }
        self.leave(held);
    }

    fn release_begins(&mut self, held: &Held, change: &Change) {
        for (task, _) in &change.begins {
            self.places.release(method_of(held, *task));
        }
    }

    /// Begins again from the document as it is in the database, with what has happened since: commands first, so that they are heeded.
    fn plan_anew(
        &mut self,
        id: &MilestoneId,
        record: MilestoneRecord,
        changes: Vec<Change>,
        careful: bool,
    ) {
        let Some(mut held) = self.held.remove(id) else {
            return;
        };
        for change in &changes {
            self.release_begins(&held, change);
        }
        let events: Vec<Event> = changes
            .into_iter()
            .flat_map(|change| change.events)
            .collect();
        held.in_flight = None;
        held.rev = record.rev;
        let parameters = Arc::clone(&held.parameters);
        held.record = MilestoneRecord {
            parameters: bson::Bson::Null,
            ..record
        };
        held.parameters = parameters;
        held.careful = careful;
        let now = self.now();
        let limits = self.shared.config.limits;
        if !held.record.inbox.is_empty()
            && let Err(error) = held.plan(Event::Mail, now, &limits)
        {
            tracing::warn!(milestone = %id, %error, "commands cannot be carried out");
        }
        if careful {
            held.replay = events.into_iter().rev().collect();
        } else {
            for event in events {
                if let Err(error) = held.plan(event, now, &limits) {
                    tracing::warn!(milestone = %id, %error, "an attempt's end no longer fits the milestone");
                }
            }
        }
        self.held.insert(id.clone(), held);
        self.next_replay(id);
        self.plan(id);
    }

    /// After a refusal: one event, one commit.
    fn next_replay(&mut self, id: &MilestoneId) {
        let now = self.now();
        let limits = self.shared.config.limits;
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if !held.careful || held.in_flight.is_some() || !held.pending.patch.is_empty() {
            return;
        }
        match held.replay.pop() {
            Some(event) => {
                if let Err(error) = held.plan(event, now, &limits) {
                    tracing::warn!(milestone = %id, %error, "an attempt's end no longer fits the milestone");
                }
            }
            None => held.careful = false,
        }
        self.plan(id);
    }

    /// Reads a milestone, for its mail or to plan it anew.
    pub(super) fn fetch(&mut self, id: &MilestoneId, anew: bool) {
        let Some(held) = self.held.get(id) else {
            return;
        };
        let token = held.token.clone();
        let store = Arc::clone(&self.shared.store);
        let wanted = id.clone();
        let id = id.clone();
        let read = async move {
            match store.get(vec![wanted]).await?.pop() {
                Some(Ok(record)) => Ok(Some(Box::new(record))),
                Some(Err(unreadable)) => Err(StoreError::Other(unreadable.to_string())),
                None => Ok(None),
            }
        };
        self.call(read, move |result| Message::Fetched {
            id,
            token,
            anew,
            result,
        });
    }

    pub(super) fn fetched(
        &mut self,
        id: &MilestoneId,
        token: &str,
        anew: bool,
        result: Result<Option<Box<MilestoneRecord>>, StoreError>,
    ) {
        // What was read for an earlier lease says nothing of this one.
        if self.held.get(id).is_none_or(|held| held.token != token) {
            return;
        }
        match result {
            Ok(None) => self.lost(id),
            Ok(Some(record)) if anew => self.after_refusal(id, *record),
            Ok(Some(record)) => self.deliver(id, *record),
            Err(error) if anew => {
                // Without it nothing can go on; the lease is renewed in the meantime.
                let _ = self.failed_call("a read", &error);
                let again = id.clone();
                let store = Arc::clone(&self.shared.store);
                let read = async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    store
                        .get(vec![again])
                        .await
                        .map(|mut found| found.pop().and_then(Result::ok).map(Box::new))
                };
                let (id, token) = (id.clone(), token.to_owned());
                self.call(read, move |result| Message::Fetched {
                    id,
                    token,
                    anew,
                    result,
                });
            }
            // The next renewal tells of the mail again.
            Err(error) => {
                let _ = self.failed_call("a read", &error);
            }
        }
    }

    fn after_refusal(&mut self, id: &MilestoneId, record: MilestoneRecord) {
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if record
            .lease
            .as_ref()
            .is_none_or(|lease| lease.token != held.token)
        {
            return self.lost(id);
        }
        let mut changes = vec![std::mem::take(&mut held.flying)];
        let alone = changes[0]
            .events
            .iter()
            .filter(|event| matches!(event, Event::Succeeded { .. } | Event::Failed { .. }))
            .count()
            == 1;
        if alone {
            changes[0].events = std::mem::take(&mut changes[0].events)
                .into_iter()
                .map(blame)
                .collect();
        }
        changes.push(std::mem::take(&mut held.pending));
        changes[1]
            .events
            .splice(0..0, std::mem::take(&mut held.replay).into_iter().rev());
        self.plan_anew(id, record, changes, true);
    }

    /// A command was sent from this process: a held milestone is read at once, another may be due now.
    pub(super) fn mail(&mut self, id: &MilestoneId) {
        if self.held.get(id).is_some_and(|held| !held.is_closing()) {
            self.fetch(id, false);
        } else {
            self.hint();
        }
    }

    /// Puts new commands into a held milestone and carries them out.
    fn deliver(&mut self, id: &MilestoneId, record: MilestoneRecord) {
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if held.is_closing() || record.mail <= held.record.mail {
            return;
        }
        if !held.pending.begins.is_empty() {
            // They must not begin in the same change as a command that came before: as it is it misses, and is planned anew.
            return;
        }
        held.record.inbox = record.inbox;
        held.record.mail = record.mail;
        self.step(id, Event::Mail);
    }
}

/// The event that the database refuses by itself: what it would store is replaced by the reason.
fn blame(event: Event) -> Event {
    let error = AttemptError {
        kind: "Refused".to_owned(),
        message: "the action took effect, but the database refuses to store its result; it is not run again".to_owned(),
        ..AttemptError::default()
    };
    match event {
        Event::Succeeded { task, number, .. } => Event::Failed {
            task,
            number,
            failed: milestone_core::machine::Failed {
                error,
                kind: Some(AttemptKind::Refused),
                fatal: true,
                retry_after: None,
                policy: milestone_core::retry::RetryPolicy::never(),
                jitter: 0.0,
                settle: Duration::ZERO,
            },
        },
        Event::Failed {
            task,
            number,
            mut failed,
        } => {
            failed.error = AttemptError {
                message: "the database refuses to store the attempt's error".to_owned(),
                ..error
            };
            Event::Failed {
                task,
                number,
                failed,
            }
        }
        other => other,
    }
}
