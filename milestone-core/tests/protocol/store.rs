//! What a store does, as `milestone-runtime/src/store/mongodb` does it: each filter, and what is read when a reply does not tell.

use milestone_core::lease::Seen;

use crate::{
    canonical::NOW,
    scenario::Broken,
    state::{Commit, CommitPhase, Outcome, Taking},
    worker::World,
};

impl World<'_> {
    /// Whether the filter of a commit matches what is stored.
    pub(crate) fn matches(&self, commit: Commit) -> bool {
        let stored = self.pool.get(self.state.stored);
        let token = self.pool.lease(self.state.stored).map(|(token, _)| token);
        let mail = self.pool.patch(commit.patch).mail();
        let ignores_token =
            self.scenario.is(Broken::CommitIgnoresToken) || self.scenario.is(Broken::NoToken);
        (stored.rev == commit.rev || self.scenario.is(Broken::CommitIgnoresRev))
            && (token == Some(commit.token) || ignores_token)
            && (mail.is_none_or(|mail| mail == stored.mail)
                || self.scenario.is(Broken::CommitIgnoresMail))
    }

    pub(crate) fn carry_out(&mut self, commit: Commit) {
        if !self.matches(commit) {
            return;
        }
        let token = self.pool.lease(self.state.stored).map(|(token, _)| token);
        if token != Some(commit.token) {
            self.break_promise("P4: one that does not hold the milestone changes it");
        }
        let after = self
            .pool
            .apply(self.state.stored, commit.patch, commit.rev + 1);
        self.store(after);
    }

    /// What became of a patch, from what is stored now: `judge.rs` of the store.
    pub(crate) fn judge(&self, commit: Commit) -> Outcome {
        let stored = self.pool.get(self.state.stored);
        let patch = self.pool.patch(commit.patch);
        let token = self.pool.lease(self.state.stored).map(|(token, _)| token);
        let ignores_token = self.scenario.is(Broken::NoToken);
        match token {
            Some(token) if token == commit.token || ignores_token => {
                if stored.rev == commit.rev + 1 {
                    Outcome::Done
                } else if stored.rev != commit.rev {
                    Outcome::Lost
                } else if patch.mail().is_some_and(|mail| mail != stored.mail) {
                    Outcome::Mail(self.state.stored)
                } else {
                    Outcome::Unknown
                }
            }
            None if patch.releases() && stored.rev == commit.rev + 1 => Outcome::Done,
            _ => Outcome::Lost,
        }
    }

    /// The reply of a commit is lost.
    pub(crate) fn no_reply(&mut self, at: usize, place: usize) {
        self.state.left.losses -= 1;
        let commit = self.worker(at).commits[place].commit;
        if self.scenario.is(Broken::LostMeansNotDone) {
            self.worker(at).commits.remove(place);
            if self.is_awaited(at, commit) {
                self.plan_over_unknown(at);
            }
            return self.pump(at);
        }
        self.worker(at).commits[place].phase = if self.scenario.is(Broken::LostMeansDone) {
            CommitPhase::Told(Outcome::Done)
        } else {
            CommitPhase::ReadBack
        };
    }

    /// Whether a milestone is still as it was when it was decided to take it.
    pub(crate) fn is_as_seen(&self, taking: Taking) -> bool {
        let mut seen = self.pool.seen(taking.seen);
        let mut now = self.pool.seen(self.state.stored);
        if self.scenario.is(Broken::ClaimIgnoresUntil) {
            let token = |seen: &mut Seen| {
                if let Some((_, until)) = &mut seen.lease {
                    *until = NOW;
                }
            };
            token(&mut seen);
            token(&mut now);
        }
        seen == now
    }

    pub(crate) fn take(&mut self, taking: Taking) {
        if !self.is_as_seen(taking) {
            return;
        }
        let until = self.pool.lease(self.state.stored).map(|(_, until)| until);
        if until.is_some_and(|until| until >= 0) {
            self.break_promise("P4: a milestone is taken from one whose lease holds");
        }
        let rev = self.pool.get(self.state.stored).rev + 1;
        let after = self.pool.apply(self.state.stored, taking.patch, rev);
        self.store(after);
    }

    pub(crate) fn renew(&mut self, token: u8, until: i8) {
        let lease = self.pool.lease(self.state.stored);
        if lease.is_some_and(|(now, _)| now == token) {
            let sets = self.scenario.is(Broken::RenewalSets);
            let after = self.pool.renew(self.state.stored, until, sets);
            self.store(after);
        }
    }
}
