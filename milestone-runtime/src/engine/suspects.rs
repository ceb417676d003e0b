//! Milestones that may be what kills their workers: each is run alone, so that it takes nothing else with it, and so that what runs beside
//! it is not suspected as well. Core counts the losses and parks what has killed too many.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use milestone_core::record::MilestoneId;
use tokio::time::Instant;

use super::Engine;

/// How many leases a worker works on as usual after it could not come to rest within one.
const REST: u32 = 5;

/// How many leases nothing else begins beside a suspect that runs: what kills its worker does so soon, and what only takes long must not
/// keep the worker from all other work.
const ALONE: u32 = 6;

/// Which suspects wait here, and which one runs.
#[derive(Default)]
pub(super) struct Suspects {
    /// Held, with something to run, in the order of their turns.
    pub(super) waiting: VecDeque<MilestoneId>,
    /// The one that runs; nothing else begins beside it.
    alone: Option<MilestoneId>,
    /// Until when it runs alone.
    alone_until: Option<Instant>,
    /// Those that have run alone for long enough.
    let_go: BTreeSet<MilestoneId>,
    drain: Drain,
}

/// To run one alone, the worker begins nothing else until what runs has ended. Where that takes longer than a lease, it works on for a
/// while before it tries again.
#[derive(Clone, Copy, Default)]
enum Drain {
    #[default]
    Off,
    /// Nothing begins until then.
    Until(Instant),
    /// All begins as usual until then.
    Rest(Instant),
}

impl Suspects {
    /// Whether nothing may begin now, but for what runs alone.
    pub(super) const fn holds_back(&self) -> bool {
        self.alone.is_some() || matches!(self.drain, Drain::Until(_))
    }

    pub(super) fn is_alone(&self, id: &MilestoneId) -> bool {
        self.alone.as_ref() == Some(id)
    }

    pub(super) fn is_let_go(&self, id: &MilestoneId) -> bool {
        self.let_go.contains(id)
    }

    pub(super) fn alone(&self) -> Option<&MilestoneId> {
        self.alone.as_ref()
    }

    /// When something changes by itself.
    pub(super) fn wake(&self) -> Option<Instant> {
        let drain = match self.drain {
            Drain::Off => None,
            Drain::Until(at) | Drain::Rest(at) => Some(at),
        };
        let alone = self.alone_until.filter(|_| self.alone.is_some());
        [drain, alone].into_iter().flatten().min()
    }

    fn drain(&mut self, now: Instant, lease: Duration) {
        self.drain = match self.drain {
            // Whoever waited has been handed back, so that a worker with less to do can take it.
            Drain::Until(_) if self.waiting.is_empty() => Drain::Rest(now + lease * REST),
            Drain::Rest(at) if at <= now && self.waiting.is_empty() => Drain::Off,
            goes_on if self.waiting.is_empty() => goes_on,
            Drain::Off => Drain::Until(now + lease),
            Drain::Until(at) if at <= now => Drain::Rest(now + lease * REST),
            Drain::Rest(at) if at <= now => Drain::Until(now + lease),
            goes_on => goes_on,
        };
    }
}

impl Engine {
    /// Ends the time of the one that ran alone, and gives the next one its turn as soon as nothing else runs.
    pub(super) fn settle_suspects(&mut self) {
        let runs = |id: &MilestoneId| {
            self.held.get(id).is_some_and(|held| {
                let is_busy = !held.is_idle() || held.queued || held.in_flight.is_some();
                held.record.is_suspect() && is_busy && !held.is_closing()
            })
        };
        // A body of it that was given up, with the lease or by a timeout, is as dangerous until it has ended.
        if let Some(id) = self.suspects.alone().cloned()
            && (runs(&id) || self.places.has_disowned(&id))
        {
            let is_over = self
                .suspects
                .alone_until
                .is_none_or(|until| until <= Instant::now());
            if !is_over {
                return;
            }
            tracing::info!(milestone = %id, "a suspect has run for long, and its worker lives: others run beside it again");
            self.suspects.let_go.insert(id);
        }
        self.suspects.alone = None;
        let held = &self.held;
        self.suspects
            .let_go
            .retain(|id| held.get(id).is_some_and(|held| held.record.is_suspect()));
        self.suspects
            .waiting
            .retain(|id| held.get(id).is_some_and(|held| !held.is_closing()));
        if self.places.is_empty()
            && let Some(id) = self.suspects.waiting.pop_front()
        {
            self.suspects.drain = Drain::Off;
            if let Some(held) = self.held.get_mut(&id) {
                tracing::warn!(milestone = %id, kind = held.record.kind, losses = held.record.losses, "workers were lost while they ran this milestone; it runs alone");
                held.queued = false;
                self.suspects.alone = Some(id.clone());
                let lease = self.shared.config.lease;
                self.suspects.alone_until = Some(Instant::now() + lease * ALONE);
                self.plan(&id);
            }
            return;
        }
        let lease = self.shared.config.lease;
        self.suspects.drain(Instant::now(), lease);
    }
}
