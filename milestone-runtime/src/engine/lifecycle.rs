//! Passes, serving, and how it ends.

use std::time::Duration;

use milestone_core::record::AttemptKind;
use tokio::{sync::oneshot, time::Instant};

use super::{Engine, Stopping, pass::Pass, pass::RunReport};

/// How long a shutdown waits for the database after its grace period, to hand back what is left.
pub(super) const LINGER: Duration = Duration::from_secs(5);

impl Engine {
    pub(super) fn begin_pass(&mut self, reply: oneshot::Sender<RunReport>) {
        let mut pass = Pass::new(self.now(), reply);
        pass.exhausted = self.shared.config.client || self.stopping.is_some();
        self.passes.push_back(pass);
    }

    pub(super) fn finish_passes(&mut self) {
        while self.passes.front().is_some_and(Pass::is_over) {
            if let Some(pass) = self.passes.pop_front() {
                pass.finish();
            }
            if let Some(next) = self.passes.front_mut() {
                // It takes what has become due while it waited for the one before.
                next.cutoff = self.shared.clock.now();
            }
        }
    }

    pub(super) fn serve(&mut self) {
        if self.shared.config.client {
            tracing::warn!(worker = %self.shared.worker, "a client runs nothing");
            return;
        }
        self.serving = true;
        self.poll_at = Instant::now();
    }

    pub(super) fn registered(&mut self) {
        self.hint();
        let ids: Vec<_> = self.held.keys().cloned().collect();
        for id in ids {
            self.plan(&id);
        }
    }

    /// Nothing new begins; what runs may end within the grace period, under leases that are still renewed.
    pub(super) fn stop(&mut self, grace: Duration, reply: oneshot::Sender<()>) {
        self.serving = false;
        let deadline = Instant::now() + grace;
        match &mut self.stopping {
            Some(stopping) => {
                stopping.deadline = stopping.deadline.min(deadline);
                stopping.replies.push(reply);
            }
            None => {
                self.stopping = Some(Stopping {
                    deadline,
                    cut: false,
                    replies: vec![reply],
                });
            }
        }
        self.hand_back_idle();
    }

    /// Nothing begins here any more, so what waits to begin is handed back.
    pub(super) fn hand_back_idle(&mut self) {
        for pass in &mut self.passes {
            pass.exhausted = true;
        }
        self.queue.clear();
        self.turns.clear();
        let ids: Vec<_> = self.held.keys().cloned().collect();
        for id in ids {
            if let Some(held) = self.held.get_mut(&id) {
                held.queued = false;
            }
            self.plan(&id);
        }
    }

    pub(super) fn finish_stop(&mut self) {
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        if !stopping.cut && Instant::now() >= stopping.deadline {
            stopping.cut = true;
            self.cut_off_all();
        }
        let cut = self.stopping.as_ref().is_some_and(|stopping| stopping.cut);
        // What a claim brings that is on its way is handed back as well.
        let waiting = self.claim_in_flight
            || self
                .held
                .values()
                .any(|held| !held.is_closing() || held.in_flight.is_some() || held.dirty);
        // A database that is away, or that does not answer in time, cannot be told; the leases end by themselves.
        let deadline = self.stopping.as_ref().map(|stopping| stopping.deadline);
        let is_late = deadline.is_some_and(|deadline| deadline + LINGER <= Instant::now());
        let away = cut && (self.outage || is_late);
        if (!waiting && self.inserts.is_empty() && self.inserts_on_wire.is_empty()) || away {
            // Of what they took, something may still be on its way, and must not begin when its reply comes.
            for pass in self.passes.drain(..) {
                pass.finish();
            }
            for reply in self
                .stopping
                .take()
                .map(|stopping| stopping.replies)
                .unwrap_or_default()
            {
                let _ = reply.send(());
            }
        }
    }

    /// The grace period is over: what still runs is cut off and handed back.
    fn cut_off_all(&mut self) {
        const MESSAGE: &str = "the worker shut down before the attempt ended";
        for serial in self.places.all_serials() {
            self.cut_off(
                serial,
                AttemptKind::Cancelled,
                "Shutdown",
                MESSAGE.to_owned(),
            );
            self.places.abort(serial);
        }
        // So are attempts that are stored as begun, but whose bodies wait for a renewal.
        let mut waiting = Vec::new();
        for (id, held) in &mut self.held {
            for (task, number) in std::mem::take(&mut held.waiting) {
                waiting.push((id.clone(), task, number));
            }
        }
        for (id, task, number) in waiting {
            self.not_begun(&id, task, number, MESSAGE);
        }
    }

    /// The runtime is gone: bodies are dropped, and the leases end by themselves.
    pub(super) fn close(self) {
        for serial in self.places.all_serials() {
            self.places.ask_to_stop(serial);
            self.places.abort(serial);
        }
    }
}
