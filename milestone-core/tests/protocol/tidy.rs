//! Time, and one form for states that mean the same.

use crate::{
    pool::Pool,
    state::{ClaimPhase, CommitPhase, Copy, Outcome, Taking, Worker},
    worker::World,
};

impl World<'_> {
    /// Everything that is written anywhere is a tick older.
    pub(crate) fn pass_time(&mut self) {
        let pool = &mut *self.pool;
        let older = |until: &mut i8| *until = (*until - 1).max(-1);
        let state = &mut self.state;
        state.stored = pool.later(state.stored);
        for worker in &mut state.workers {
            if let Some(held) = &mut worker.held {
                held.record = pool.later(held.record);
                older(&mut held.until);
                let flying = held.in_flight.as_mut().map(|commit| &mut commit.patch);
                let patches = [
                    held.flying.patch.as_mut(),
                    held.pending.patch.as_mut(),
                    flying,
                ];
                for patch in patches.into_iter().flatten() {
                    *patch = pool.later_patch(*patch);
                }
            }
            if let Some(insert) = &mut worker.insert {
                insert.record = pool.later(insert.record);
            }
            if let Some(claim) = &mut worker.claim {
                later_taking(pool, &mut claim.taking);
            }
            for call in &mut worker.commits {
                call.commit.patch = pool.later_patch(call.commit.patch);
                if let CommitPhase::Told(Outcome::Mail(record)) = &mut call.phase {
                    *record = pool.later(*record);
                }
            }
            if let Some(renewal) = &mut worker.renewal {
                older(&mut renewal.until);
            }
            if let Some((_, read)) = &mut worker.read {
                *read = pool.later(*read);
            }
        }
        for copy in &mut state.late {
            match copy {
                Copy::Commit(commit) => commit.patch = pool.later_patch(commit.patch),
                Copy::Claim(taking) => later_taking(pool, taking),
                Copy::Renewal { until, .. } => older(until),
            }
        }
    }

    /// What cannot match any more never will, since `rev`, `mail` and tokens never come back: a call then waits for its read-back, and a
    /// late copy is forgotten. Without this the same states would come many times.
    pub(crate) fn tidy(&mut self) {
        for at in 0..self.state.workers.len() {
            let mut worker = std::mem::take(self.worker(at));
            for call in &mut worker.commits {
                if call.phase == CommitPhase::OnWire && !self.matches(call.commit) {
                    call.phase = CommitPhase::ReadBack;
                }
            }
            if let Some(claim) = &mut worker.claim
                && claim.phase == ClaimPhase::OnWire
                && !self.is_as_seen(claim.taking)
            {
                claim.phase = ClaimPhase::ReadBack;
            }
            if worker.stopping {
                let over = Worker {
                    stopping: false,
                    cut: false,
                    disowned: Vec::new(),
                    ..worker.clone()
                };
                if over.is_fresh() {
                    // The process has ended, and another one begins in its place.
                    worker = over;
                }
            }
            *self.worker(at) = worker;
        }
        let token = self.pool.lease(self.state.stored).map(|(token, _)| token);
        let mut late = std::mem::take(&mut self.state.late);
        late.retain(|copy| match copy {
            Copy::Commit(commit) => self.matches(*commit),
            Copy::Claim(taking) => self.is_as_seen(*taking),
            Copy::Renewal { token: of, .. } => token == Some(*of),
        });
        late.sort_unstable();
        late.dedup();
        self.state.late = late;
    }
}

fn later_taking(pool: &mut Pool, taking: &mut Taking) {
    taking.seen = pool.later(taking.seen);
    taking.taken = pool.later(taking.taken);
    taking.patch = pool.later_patch(taking.patch);
}
