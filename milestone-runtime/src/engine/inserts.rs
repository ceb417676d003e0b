//! New milestones on their way into the store. One that is started where there is a free place is born leased, with its first attempts
//! begun, so that a chain of n actions costs n + 1 writes.

use std::sync::Arc;

use bson::Bson;
use milestone_core::{
    machine::{Event, advance},
    record::{Lease, MilestoneRecord},
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Engine,
    held::{Held, begun},
    message::Inserting,
    message::Message,
    method_of,
};
use crate::{
    action::StoredValue,
    ids::random_token,
    start::{Conflict, StartError, same_start},
    store::{Insertion, StoreError},
};

impl Engine {
    pub(super) fn start(
        &mut self,
        record: MilestoneRecord,
        reply: oneshot::Sender<Result<(), StartError>>,
    ) {
        let mut held = None;
        let mut record = record;
        self.started += 1;
        self.starts = true;
        if self.serving
            && self.stopping.is_none()
            && self.queue.is_empty()
            && !self.suspects.holds_back()
            && self.places.free() > 0
            && !self.outage
        {
            let parameters = std::mem::replace(&mut record.parameters, Bson::Null);
            held = self.born_leased(&record, &parameters);
            if let Some(held) = &held {
                record = held.record.clone();
            }
            record.parameters = parameters;
        }
        self.inserts.push(Inserting {
            record: Arc::new(record),
            held,
            reply: Some(reply),
            sent: 0,
            since: Instant::now(),
        });
    }

    /// Gives a new milestone to this worker and begins what can begin; nothing, if nothing can.
    fn born_leased(&mut self, record: &MilestoneRecord, parameters: &Bson) -> Option<Box<Held>> {
        if self.held.contains_key(&record.id) {
            return None;
        }
        let now = self.now();
        let mut leased = record.clone();
        leased.born_leased(Lease {
            owner: self.shared.worker.clone(),
            token: random_token(),
            since: now,
            until: self
                .shared
                .clock
                .in_future(self.shared.config.stored_lease()),
        });
        let held = Box::new(Held::with(
            leased,
            StoredValue::new(parameters),
            &self.tell,
        )?);
        let id = held.id().clone();
        self.held.insert(id.clone(), held);
        let begins = self.choose(&id, now);
        let mut held = self.held.remove(&id)?;
        if std::mem::take(&mut held.queued) {
            self.queue.retain(|queued| *queued != id);
            self.turns.retain(|queued| *queued != id);
        }
        if begins.is_empty() {
            return None;
        }
        let event = Event::Begin {
            tasks: begins.clone(),
            worker: self.shared.worker.clone(),
        };
        // The document is stored as it is then, so the patch is not needed.
        let _stored_whole =
            advance(&mut held.record, event, now, &self.shared.config.limits).ok()?;
        for task in begins {
            self.places.reserve(method_of(&held, task));
        }
        Some(held)
    }

    pub(super) fn send_inserts(&mut self) {
        let batching = self.shared.store.batching();
        while self
            .inserts_on_wire
            .is_free_for(self.inserts.len(), batching)
        {
            let rest = self
                .inserts
                .split_off(self.inserts.len().min(batching.writes));
            let mut batch = std::mem::replace(&mut self.inserts, rest);
            for inserting in &mut batch {
                inserting.sent += 1;
                if inserting.held.is_some() {
                    self.births.insert(inserting.record.id.clone());
                }
            }
            let records = batch
                .iter()
                .map(|inserting| Arc::clone(&inserting.record))
                .collect();
            self.inserts_on_wire.sent(batch.len());
            let store = Arc::clone(&self.shared.store);
            self.call(async move { store.insert(records).await }, |result| {
                Message::Inserted { batch, result }
            });
        }
    }

    pub(super) fn inserted(
        &mut self,
        batch: Vec<Inserting>,
        result: Result<Vec<Insertion>, StoreError>,
    ) {
        self.inserts_on_wire.back(batch.len());
        match result {
            Ok(results) => {
                self.successful_call();
                for (inserting, result) in batch.into_iter().zip(results) {
                    self.settle_insert(inserting, result);
                }
            }
            Err(error) => self.insert_again(batch, &Arc::new(error)),
        }
    }

    fn settle_insert(&mut self, inserting: Inserting, result: Insertion) {
        let mut inserting = inserting;
        let record = Arc::clone(&inserting.record);
        self.births.remove(&record.id);
        let held = inserting.held.take();
        let answer = match result {
            Insertion::Inserted => {
                self.born(held);
                Ok(())
            }
            // An earlier copy of the same insert has arrived, sent again by this engine or by the driver.
            Insertion::Exists(Ok(existing)) if same_birth(&existing, &record) => {
                self.born(held);
                Ok(())
            }
            Insertion::Exists(Ok(existing)) => {
                self.unborn(held);
                same_start(&existing, &record).map_err(|conflict: Conflict| StartError::Conflict {
                    id: record.id.clone(),
                    conflict,
                })
            }
            Insertion::Exists(Err(unreadable)) => {
                self.unborn(held);
                Err(StartError::Unreadable(unreadable))
            }
            Insertion::Refused(error) => {
                self.unborn(held);
                Err(StartError::NotStored {
                    id: record.id.clone(),
                    error,
                })
            }
        };
        inserting.tell(answer);
    }

    /// The fate of the inserts is unknown, or the server is away: again, the same to the byte. Whoever waits is told in time; what may have
    /// arrived is sent on until it is known, since it may hold attempts that are begun.
    fn insert_again(&mut self, batch: Vec<Inserting>, error: &Arc<StoreError>) {
        let wait = self.failed_call("an insert", error);
        let mut again = Vec::new();
        for mut inserting in batch {
            if matches!(**error, StoreError::Unreachable { sent: false, .. }) {
                inserting.sent -= 1;
            }
            if inserting.since.elapsed() + wait < self.shared.config.start_timeout {
                again.push(inserting);
                continue;
            }
            let id = inserting.record.id.clone();
            let error = Arc::clone(error);
            if inserting.sent == 0 {
                self.births.remove(&id);
                self.unborn(inserting.held.take());
                inserting.tell(Err(StartError::NotStored { id, error }));
            } else {
                inserting.tell(Err(StartError::Unknown { id, error }));
                again.push(inserting);
            }
        }
        if !again.is_empty() {
            self.later(wait, Message::InsertAgain { batch: again });
        }
    }

    /// A new milestone is stored: if it was born leased, its bodies start.
    fn born(&mut self, held: Option<Box<Held>>) {
        let Some(held) = held else {
            return;
        };
        let id = held.id().clone();
        if self.held.contains_key(&id) {
            // The reply was so late that the lease ended, and this worker has claimed it since.
            return self.unborn(Some(held));
        }
        let begins = begun(&held);
        self.held.insert(id.clone(), held);
        self.start_bodies(&id, begins);
        // What else could begin waits for a place.
        self.plan(&id);
    }

    /// A new milestone is not stored, or not as this one: the places that it had are free.
    fn unborn(&mut self, held: Option<Box<Held>>) {
        if let Some(held) = held {
            for (task, _) in begun(&held) {
                self.places.release(method_of(&held, task));
            }
        }
    }
}

impl Inserting {
    fn tell(&mut self, answer: Result<(), StartError>) {
        if let Some(reply) = self.reply.take() {
            // Whoever started it may no longer wait: it is stored all the same.
            let _ = reply.send(answer);
        }
    }
}

/// Whether a stored milestone is the very one that was sent, leased to this worker; one that nobody holds is any worker's.
fn same_birth(existing: &MilestoneRecord, sent: &MilestoneRecord) -> bool {
    let token = |record: &MilestoneRecord| record.lease.as_ref().map(|lease| lease.token.clone());
    sent.lease.is_some() && token(existing) == token(sent) && existing.rev == sent.rev
}
