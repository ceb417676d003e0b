//! Leases are renewed at a third of their length, all of them in one call, which also tells of losses and of new mail.

use std::{sync::Arc, time::Duration};

use milestone_core::record::MilestoneId;
use tokio::time::Instant;

use super::{Engine, message::Message};
use crate::store::{RenewRequest, Renewed, StoreError};

impl Engine {
    /// Whether the lease holds for sure, with a margin for the clock.
    pub(super) fn is_live(&self, id: &MilestoneId) -> bool {
        let margin = i64::try_from((self.shared.config.lease / 10).as_millis()).unwrap_or(0);
        self.held.get(id).is_some_and(|held| {
            self.now().timestamp_millis() < held.until.timestamp_millis() - margin
        })
    }

    pub(super) fn send_renewal(&mut self) {
        if self.renewing || self.held.is_empty() || Instant::now() < self.renew_at {
            return;
        }
        let holds = self
            .held
            .values()
            .map(|held| (held.id().clone(), held.token.clone()))
            .collect();
        let until = self.shared.clock.in_future(self.shared.config.lease);
        let request = RenewRequest {
            owner: self.shared.worker.clone(),
            holds,
            until,
        };
        self.renewing = true;
        self.renew_at = Instant::now() + self.shared.config.lease / 3;
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
        for (id, token) in &request.holds {
            let Some(held) = self.held.get_mut(id) else {
                continue;
            };
            if held.token != *token {
                continue;
            }
            held.until = held.until.max(request.until);
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
