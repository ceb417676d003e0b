//! What can happen next: each worker, the network, the operator and time, one step at a time.

use crate::{
    canonical::NOW,
    pool::Pool,
    scenario::{Broken, Scenario},
    state::{
        Claim, ClaimPhase, CommitPhase, Copy, Held, InsertPhase, Outcome, Renewal, RenewalPhase,
        State, Taking, Worker,
    },
    step::Step,
    worker::World,
};

/// A step, what is then, and the promise that it breaks, if it does.
pub(crate) struct Next {
    pub(crate) step: Step,
    pub(crate) state: State,
    pub(crate) broken: Option<String>,
}

/// All that can happen next.
pub(crate) fn next(pool: &mut Pool, scenario: &Scenario, state: &State) -> Vec<Next> {
    let mut steps = Steps {
        pool,
        scenario,
        state,
        next: Vec::new(),
    };
    for at in 0..state.workers.len() {
        steps.inserts(at);
        steps.claims(at);
        steps.commits(at);
        steps.renewals(at);
        steps.mail(at);
        steps.bodies(at);
        steps.disasters(at);
    }
    steps.copies();
    steps.operator();
    steps.time();
    steps.next
}

struct Steps<'a> {
    pool: &'a mut Pool,
    scenario: &'a Scenario,
    state: &'a State,
    next: Vec<Next>,
}

impl<'a> Steps<'a> {
    fn add(&mut self, step: Step, happen: impl FnOnce(&mut World<'_>)) {
        let mut world = World {
            pool: self.pool,
            scenario: self.scenario,
            state: self.state.clone(),
            broken: None,
        };
        happen(&mut world);
        world.tidy();
        let (state, broken) = (world.state, world.broken);
        if state != *self.state || broken.is_some() {
            self.next.push(Next {
                step,
                state,
                broken,
            });
        }
    }

    fn worker(&self, at: usize) -> &'a Worker {
        &self.state.workers[at]
    }

    fn inserts(&mut self, at: usize) {
        let Some(insert) = self.worker(at).insert else {
            return;
        };
        match insert.phase {
            InsertPhase::Told => {
                self.add(Step::Born(at), |world| {
                    world.worker(at).insert = None;
                    world.born(at, insert);
                    world.pump(at);
                });
                if self.state.left.losses > 0 {
                    self.add(Step::InsertReplyLost(at), |world| {
                        world.state.left.losses -= 1;
                        if let Some(insert) = &mut world.worker(at).insert {
                            insert.phase = InsertPhase::Again;
                        }
                    });
                }
            }
            InsertPhase::Again => self.add(Step::InsertedAgain(at), |world| {
                world.worker(at).insert = None;
                let stored = world.state.stored;
                let birth = |pool: &Pool, id| {
                    let token = pool.lease(id).map(|(token, _)| token);
                    (token, pool.get(id).rev)
                };
                if birth(world.pool, stored) == birth(world.pool, insert.record) {
                    world.born(at, insert);
                    world.pump(at);
                }
            }),
        }
    }

    fn claims(&mut self, at: usize) {
        let Some(claim) = self.worker(at).claim else {
            if !self.worker(at).stopping && may_be_taken(self.pool, self.state) {
                self.add(Step::Looks(at), |world| {
                    let seen = world.state.stored;
                    let stored = world.pool.lease(seen).map(|(token, _)| token);
                    let token = world.state.new_token(stored);
                    let (record, patch) = world.pool.claim(seen, token, 1);
                    let taking = Taking {
                        token,
                        seen,
                        taken: record,
                        patch,
                    };
                    let phase = ClaimPhase::OnWire;
                    world.worker(at).claim = Some(Claim { taking, phase });
                });
            }
            return;
        };
        let taking = claim.taking;
        let may_be_lost = self.state.left.losses > 0;
        let set = |world: &mut World<'_>, phase| {
            world.worker(at).claim = Some(Claim { taking, phase });
        };
        match claim.phase {
            ClaimPhase::OnWire => {
                self.add(Step::ClaimArrives(at), |world| {
                    world.take(taking);
                    set(world, ClaimPhase::Told);
                });
                if may_be_lost {
                    self.add(Step::ClaimRequestLost(at), |world| {
                        world.state.left.losses -= 1;
                        world.state.late.push(Copy::Claim(taking));
                        set(world, ClaimPhase::ReadBack);
                    });
                }
            }
            ClaimPhase::ReadBack => {
                self.add(Step::ClaimReadBack(at), |world| {
                    let stored = world.state.stored;
                    let is_ours = world.pool.lease(stored).map(|(token, _)| token)
                        == Some(taking.token)
                        && world.pool.get(stored).rev == world.pool.get(taking.taken).rev;
                    if is_ours {
                        set(world, ClaimPhase::Told);
                    } else {
                        world.worker(at).claim = None;
                    }
                });
                if may_be_lost {
                    self.add(Step::ClaimReadBackLost(at), |world| {
                        world.state.left.losses -= 1;
                        world.worker(at).claim = None;
                    });
                }
            }
            ClaimPhase::Told => {
                self.add(Step::Claimed(at), |world| {
                    world.worker(at).claim = None;
                    world.claimed(at, taking.taken);
                    world.pump(at);
                });
                if may_be_lost {
                    self.add(Step::ClaimReplyLost(at), |world| {
                        world.state.left.losses -= 1;
                        set(world, ClaimPhase::ReadBack);
                    });
                }
            }
        }
    }

    fn commits(&mut self, at: usize) {
        for (place, call) in self.worker(at).commits.iter().enumerate() {
            let (place, commit) = (place, call.commit);
            let may_be_lost = self.state.left.losses > 0;
            let set = move |world: &mut World<'_>, phase| {
                world.worker(at).commits[place].phase = phase;
            };
            match call.phase {
                CommitPhase::OnWire => {
                    self.add(Step::CommitArrives(at), |world| {
                        world.carry_out(commit);
                        set(world, CommitPhase::Told(Outcome::Done));
                    });
                    if self.state.left.copies > 0 {
                        let step = Step::CommitDelivered {
                            worker: at,
                            twice: true,
                        };
                        self.add(step, |world| {
                            world.carry_out(commit);
                            world.state.late.push(Copy::Commit(commit));
                            world.state.left.copies -= 1;
                            set(world, CommitPhase::Told(Outcome::Done));
                        });
                    }
                    if may_be_lost {
                        self.add(Step::CommitRequestLost(at), |world| {
                            world.state.late.push(Copy::Commit(commit));
                            world.no_reply(at, place);
                        });
                    }
                }
                CommitPhase::ReadBack => {
                    self.add(Step::CommitReadBack(at), |world| {
                        let verdict = world.judge(commit);
                        set(world, CommitPhase::Told(verdict));
                    });
                    if may_be_lost {
                        self.add(Step::CommitReadBackLost(at), |world| {
                            world.state.left.losses -= 1;
                            set(world, CommitPhase::Told(Outcome::Unknown));
                        });
                    }
                }
                CommitPhase::Told(outcome) => {
                    self.add(Step::Committed(at, outcome), |world| {
                        if outcome == Outcome::Unknown {
                            set(world, CommitPhase::Again);
                        } else {
                            world.worker(at).commits.remove(place);
                            world.committed(at, commit, outcome);
                        }
                        world.pump(at);
                    });
                    if may_be_lost && outcome == Outcome::Done {
                        self.add(Step::CommitReplyLost(at), |world| {
                            world.no_reply(at, place);
                        });
                    }
                }
                CommitPhase::Again => self.add(Step::CommitAgain(at), |world| {
                    let forgets = world.scenario.is(Broken::UnknownIsForgotten);
                    if forgets || !world.is_awaited(at, commit) {
                        world.worker(at).commits.remove(place);
                        return world.pump(at);
                    }
                    // What is in flight, the same to the byte.
                    let held = world.worker(at).held.as_ref();
                    if let Some(commit) = held.and_then(|held| held.in_flight) {
                        world.worker(at).commits[place].commit = commit;
                        set(world, CommitPhase::OnWire);
                    }
                }),
            }
        }
    }

    fn renewals(&mut self, at: usize) {
        let Some(renewal) = self.worker(at).renewal else {
            // Before it has gone on for a tick there is nothing to renew.
            let held = self.worker(at).held.as_ref();
            if let Some(token) = held.filter(|held| held.until < 1).map(|held| held.token) {
                self.add(Step::RenewalSent(at), |world| {
                    world.worker(at).renewal = Some(Renewal {
                        token,
                        until: 1,
                        phase: RenewalPhase::OnWire,
                    });
                });
            }
            return;
        };
        let Renewal { token, until, .. } = renewal;
        match renewal.phase {
            RenewalPhase::OnWire => {
                let twices = if self.state.left.copies > 0 { 2 } else { 1 };
                for twice in [false, true].into_iter().take(twices) {
                    let step = Step::RenewalArrives { worker: at, twice };
                    self.add(step, |world| {
                        world.renew(token, until);
                        if twice {
                            world.state.left.copies -= 1;
                            world.state.late.push(Copy::Renewal { token, until });
                        }
                        let now = world.pool.lease(world.state.stored);
                        let lost = now.is_none_or(|(now, _)| now != token);
                        let phase = RenewalPhase::Told { lost };
                        world.worker(at).renewal = Some(Renewal { phase, ..renewal });
                    });
                }
            }
            RenewalPhase::Told { lost } => {
                self.add(Step::Renewed { worker: at, lost }, |world| {
                    world.worker(at).renewal = None;
                    world.renewed(at, renewal);
                    world.pump(at);
                });
            }
        }
        if self.state.left.losses > 0 {
            self.add(Step::RenewalLost(at), |world| {
                world.state.left.losses -= 1;
                world.worker(at).renewal = None;
                if renewal.phase == RenewalPhase::OnWire {
                    world.state.late.push(Copy::Renewal { token, until });
                }
            });
        }
    }

    /// A renewal tells of new mail, or a hint does; it is read at any time after it has come.
    fn mail(&mut self, at: usize) {
        let Some(read) = self.worker(at).read else {
            let stored = self.state.stored;
            let mail = |id| self.pool.get(id).mail;
            let knows_less = |held: &Held| mail(held.record) < mail(stored);
            let is_open = |held: &&Held| self.pool.get(held.record).lease.is_some();
            let held = self.worker(at).held.as_ref().filter(is_open);
            if let Some(held) = held.filter(|held| knows_less(held)) {
                let read = (held.token, stored);
                self.add(Step::MailRead(at), |world| {
                    world.worker(at).read = Some(read);
                });
            }
            return;
        };
        self.add(Step::MailDelivered(at), |world| {
            world.worker(at).read = None;
            world.fetched(at, read);
            world.pump(at);
        });
    }

    fn bodies(&mut self, at: usize) {
        let bodies = self.worker(at).held.iter().flat_map(|held| &held.bodies);
        for task in bodies.copied().collect::<Vec<_>>() {
            for fails in [false, true] {
                if fails && self.state.left.failures == 0 {
                    continue;
                }
                let step = Step::BodyEnds {
                    worker: at,
                    task,
                    fails,
                };
                self.add(step, |world| {
                    world.state.left.failures -= u8::from(fails);
                    world.ended(at, task, !fails);
                    world.pump(at);
                });
            }
        }
        for task in self.worker(at).disowned.clone() {
            self.add(Step::GivenUpBodyEnds(at, task), |world| {
                world.worker(at).disowned.retain(|other| *other != task);
                world.plan(at);
                world.pump(at);
            });
        }
        // What was due only later, and what had to wait until the wire was free.
        self.add(Step::Plans(at), |world| {
            world.plan(at);
            world.pump(at);
        });
    }

    fn disasters(&mut self, at: usize) {
        if self.state.left.crashes > 0 && !self.worker(at).is_fresh() {
            self.add(Step::Crashes(at), |world| {
                world.state.left.crashes -= 1;
                let worker = std::mem::take(world.worker(at));
                // What is on the wire may still arrive.
                world.state.late.extend(copies_of(&worker));
            });
        }
        if self.state.left.stops > 0 && self.worker(at).held.is_some() && !self.worker(at).stopping
        {
            self.add(Step::ToldToStop(at), |world| {
                world.state.left.stops -= 1;
                world.worker(at).stopping = true;
                world.plan(at);
                world.pump(at);
            });
        }
        if self.worker(at).stopping && !self.worker(at).cut {
            self.add(Step::CutOff(at), |world| {
                world.cut_off_all(at);
                world.pump(at);
            });
        }
    }

    fn copies(&mut self) {
        for (place, copy) in self.state.late.iter().enumerate() {
            let copy = *copy;
            self.add(Step::CopyArrives(copy), |world| {
                world.state.late.remove(place);
                match copy {
                    Copy::Commit(commit) => world.carry_out(commit),
                    Copy::Claim(taking) => world.take(taking),
                    Copy::Renewal { token, until } => world.renew(token, until),
                }
            });
        }
    }

    fn operator(&mut self) {
        let which = self.state.sent.len();
        if let Some(order) = self.scenario.commands.get(which) {
            self.add(Step::CommandSent(which), |world| {
                let sent = world.pool.send(world.state.stored, which, order, false);
                world.state.sent.push(sent.is_some());
                if let Some(after) = sent {
                    world.store(after);
                }
            });
        }
        if self.state.left.resends == 0 {
            return;
        }
        for (which, order) in self.scenario.commands.iter().enumerate() {
            if self.state.sent.get(which) != Some(&true) {
                continue;
            }
            let again = self.scenario.is(Broken::CommandsNotRecognised);
            self.add(Step::CommandSentAgain(which), |world| {
                world.state.left.resends -= 1;
                let sent = world.pool.send(world.state.stored, which, order, again);
                if let Some(after) = sent {
                    world.store(after);
                }
            });
        }
    }

    /// A tick is long: calls come back and leases are renewed before it is over, unless the network or a worker is slow.
    fn time(&mut self) {
        let ends = |(token, until)| (until == 0).then_some(token);
        let ends = self.pool.lease(self.state.stored).and_then(ends);
        let workers = &self.state.workers;
        let freezes = workers
            .iter()
            .any(|worker| worker.is_calling() || ends.is_some_and(|token| worker.owns(token)));
        if freezes && self.state.left.freezes == 0 {
            return;
        }
        self.add(Step::TimePasses { freezes }, |world| {
            world.state.left.freezes -= u8::from(freezes);
            world.pass_time();
        });
    }
}

/// Whether it is due, and nobody's.
fn may_be_taken(pool: &Pool, state: &State) -> bool {
    let stored = pool.get(state.stored);
    let is_due = stored.next.as_ref().is_some_and(|next| next.at <= NOW);
    is_due && pool.lease(state.stored).is_none_or(|(_, until)| until < 0)
}

fn copies_of(worker: &Worker) -> Vec<Copy> {
    let mut copies = Vec::new();
    let on_wire = |claim: &&Claim| claim.phase == ClaimPhase::OnWire;
    copies.extend(
        worker
            .claim
            .as_ref()
            .filter(on_wire)
            .map(|claim| Copy::Claim(claim.taking)),
    );
    for call in &worker.commits {
        if call.phase == CommitPhase::OnWire {
            copies.push(Copy::Commit(call.commit));
        }
    }
    let on_wire = |renewal: &&Renewal| renewal.phase == RenewalPhase::OnWire;
    let renewal = worker.renewal.as_ref().filter(on_wire);
    copies.extend(renewal.map(|renewal| Copy::Renewal {
        token: renewal.token,
        until: renewal.until,
    }));
    copies
}
