//! Leases are renewed at a third of their length, all of them in one call, which also tells of losses and of new mail.

use std::{collections::HashSet, sync::Arc, time::Duration};

use milestone_core::{machine::Event, record::MilestoneId};
use tokio::time::Instant;

use super::{Engine, held::Held, message::Message};
use crate::store::{RenewRequest, Renewed, StoreError};

impl Engine {
    /// Whether the lease holds for sure, with a margin for the clock.
    pub(super) fn is_live(&self, id: &MilestoneId) -> bool {
        let margin = i64::try_from((self.shared.config.lease / 10).as_millis()).unwrap_or(0);
        self.held.get(id).is_some_and(|held| {
            let latest = self.shared.clock.latest().timestamp_millis();
            latest < held.until().timestamp_millis() - margin
        })
    }

    /// Whether a lease of this worker has ended by what it knows: its renewal fails, or is on its way for too long. One document that the
    /// database does not let be changed says nothing of the others.
    pub(super) fn renews_late(&self) -> bool {
        let now = self.now();
        let renewed = self.held.values().filter(|held| !held.waits());
        let mut renewed = renewed.filter(|held| !held.unrenewed);
        renewed.any(|held| held.until() <= now)
    }

    pub(super) fn send_renewal(&mut self) {
        if self.renewing || self.held.is_empty() || Instant::now() < self.renew_at {
            return;
        }
        self.hand_back_waiting();
        let holds: Vec<_> = self
            .held
            .values()
            .filter(|held| !held.waits())
            .map(|held| (held.id().clone(), held.token.clone()))
            .collect();
        self.renew_at = Instant::now() + self.shared.config.lease / 3;
        if holds.is_empty() {
            return;
        }
        let until = self
            .shared
            .clock
            .in_future(self.shared.config.stored_lease());
        let request = RenewRequest {
            owner: self.shared.worker.clone(),
            holds,
            until,
        };
        self.renewing = true;
        let store = Arc::clone(&self.shared.store);
        let asked = Instant::now();
        let copy = request.clone();
        self.call(async move { store.renew(copy).await }, move |result| {
            Message::Renewed {
                request,
                round_trip: asked.elapsed(),
                result,
            }
        });
    }

    /// The lease of a milestone of which nothing runs is not extended: one that has waited for a place or for its turn for a while is handed
    /// back, since another worker may have one. Those of a pass stay, since the pass is to run them.
    fn hand_back_waiting(&mut self) {
        if !self.serving || !self.passes.is_empty() {
            return;
        }
        let (now, limits) = (self.now(), self.shared.config.limits);
        let fresh = i64::try_from((self.shared.config.lease * 3 / 4).as_millis()).unwrap_or(0);
        let is_fresh =
            |held: &Held| held.until().timestamp_millis() - now.timestamp_millis() > fresh;
        let places = &self.places;
        for (id, held) in &mut self.held {
            if !held.waits() || is_fresh(held) || places.has_disowned(id) {
                continue;
            }
            held.queued = false;
            if let Err(error) = held.plan(Event::HandBack, now, &limits) {
                tracing::warn!(milestone = %id, %error, "a milestone that waits cannot be handed back");
            } else if !held.dirty {
                held.dirty = true;
                self.dirty.push_back(id.clone());
            }
        }
        let held = &self.held;
        let still = |id: &MilestoneId| held.get(id).is_some_and(|held| held.queued);
        self.queue.retain(still);
        self.turns.retain(still);
        self.send_commits();
    }

    pub(super) fn renewed(
        &mut self,
        request: &RenewRequest,
        round_trip: Duration,
        result: Result<Renewed, StoreError>,
    ) {
        self.renewing = false;
        let renewed = match result {
            Ok(renewed) => renewed,
            Err(error) => {
                // Nothing is cancelled: while the database is away, nobody else can take the milestones either.
                let wait = self.failed_call("a renewal", &error);
                self.renew_at = Instant::now() + wait;
                return;
            }
        };
        self.successful_call();
        self.set_time(renewed.now, round_trip);
        if self.renews_late() {
            // Whatever kept this renewal has perhaps kept those of others, too: they get one lease.
            self.takes_expired_from = Some(Instant::now() + self.shared.config.lease);
        }
        for id in &renewed.lost {
            let token = request
                .holds
                .iter()
                .find(|(held, _)| held == id)
                .map(|(_, token)| token);
            // One that is being handed back may have given up its lease in between: its commit tells.
            if self
                .held
                .get(id)
                .is_some_and(|held| Some(&held.token) == token && !held.is_closing())
            {
                self.lost(id);
            }
        }
        let unrenewed: HashSet<_> = renewed.unrenewed.iter().collect();
        for (id, token) in &request.holds {
            let Some(held) = self.held.get_mut(id) else {
                continue;
            };
            if held.token != *token {
                continue;
            }
            held.unrenewed = unrenewed.contains(id);
            if held.unrenewed {
                continue;
            }
            held.hold.extend(request.until);
            let waiting = std::mem::take(&mut held.waiting);
            if !waiting.is_empty() {
                self.start_bodies(id, waiting);
            }
        }
        for (id, mail) in renewed.mail {
            let new = self
                .held
                .get(&id)
                .is_some_and(|held| mail > held.record.mail && !held.is_closing());
            if new {
                self.fetch(&id, false);
            }
        }
    }
}
