//! What the bodies of actions did: when they began, took effect and ended, and what of that must not be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::{Bson, doc};
use milestone_runtime::{
    action::Context,
    core::record::{ActionRecord, ActionState, MilestoneId, MilestoneRecord, Phase},
};

use super::{court::Court, log::Log, story::LEASE};

/// One call of a body.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: MilestoneId,
    pub(crate) action: String,
    pub(crate) phase: Phase,
    pub(crate) attempt: i64,
    /// Of a verify: the attempt that is in doubt.
    doubted: i64,
    /// The process that it runs in, and the epoch of its lease.
    pub(crate) process: String,
    epoch: i64,
    /// Whether it was to run alone when it began.
    pub(crate) suspect: bool,
    /// The turn in which it began, and when.
    pub(crate) begun: u64,
    at: u64,
    /// The turn in which it took effect; of a verify, in which it said that its action has.
    pub(crate) effect: Option<u64>,
    pub(crate) end: Option<End>,
    /// Whether its process was frozen while it ran.
    pub(crate) frozen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ok,
    /// Its own error.
    Err,
    Panic,
    /// Dropped in its middle.
    Dropped,
}

pub(crate) struct Ledger {
    log: Arc<Log>,
    court: Arc<Court>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    turn: u64,
    runs: Vec<Run>,
    /// Attempts of which an operator or a verify has said that they did not take effect, and was right.
    not_applied: Vec<(MilestoneId, String, i64)>,
    /// Processes that have shut down.
    closed: Vec<String>,
}

impl Ledger {
    pub(crate) fn new(log: Arc<Log>, court: Arc<Court>) -> Self {
        Self {
            log,
            court,
            inner: Mutex::default(),
        }
    }

    /// A body begins.
    pub(crate) fn begin(self: &Arc<Self>, process: &str, context: &Context) -> Entry {
        let (id, action) = (context.milestone_id().clone(), context.action().to_owned());
        let (phase, attempt) = (context.phase(), context.attempt());
        self.log.note(
            process,
            format_args!("body of {id}/{action} {phase:?} {attempt} begins"),
        );
        self.check_begin(process, context);
        let record = self.court.record(&id);
        let of_it = record.as_ref().and_then(|record| record.action(&action));
        let doubted = of_it.map_or(0, |(_, action)| action.attempts);
        let suspect = self.runs_alone(process, context, record.as_ref());
        let mut inner = self.lock();
        inner.turn += 1;
        let run = Run {
            id,
            action,
            phase,
            attempt,
            doubted,
            process: process.to_owned(),
            epoch: context.epoch(),
            suspect,
            begun: inner.turn,
            at: self.log.now(),
            effect: None,
            end: None,
            frozen: false,
        };
        inner.runs.push(run);
        Entry {
            ledger: Arc::clone(self),
            index: inner.runs.len() - 1,
        }
    }

    /// It is stored as begun, under a lease that lives and is the worker's; what may run once does not run again.
    fn check_begin(&self, process: &str, context: &Context) {
        let (id, name, attempt) = (context.milestone_id(), context.action(), context.attempt());
        let what = format!("the body of {id}/{name}, attempt {attempt}, begins in {process}");
        let Some(record) = self.court.record(id) else {
            return self.log.wrong(format_args!("{what}, and is not stored"));
        };
        let Some((_, action)) = record.action(name) else {
            return self.log.wrong(format_args!("{what}, and has no action"));
        };
        let running = action.running_in(context.phase());
        if self.lock().closed.iter().any(|closed| closed == process) {
            self.log.wrong(format_args!("{what}, which has shut down"));
        }
        if context.phase() == Phase::Verify {
            self.check_verify(&what, id, action);
        }
        if context.phase() == Phase::Do && action.state == ActionState::Completed {
            self.log.wrong(format_args!("{what}, and was complete"));
        }
        if running.is_none_or(|running| running.number != attempt) {
            self.log
                .wrong(format_args!("{what}, and is stored as {running:?}"));
        }
        let lives = record.lease.as_ref().is_some_and(|lease| {
            lease.owner == context.worker()
                && record.epoch == context.epoch()
                && lease.until > self.court.time()
        });
        if !lives {
            self.log.wrong(format_args!(
                "{what}, under no lease that lives: {:?}",
                record
                    .lease
                    .as_ref()
                    .map(|lease| (&lease.owner, lease.until))
            ));
        }
        if context.phase() == Phase::Do && !action.mode.repeatable() {
            let inner = self.lock();
            for run in inner.of(id, name, Phase::Do) {
                let said = (id.clone(), name.to_owned(), run.attempt);
                if run.end != Some(End::Err) && !inner.not_applied.contains(&said) {
                    self.log.wrong(format_args!(
                        "{what}, and is plain: attempt {} ended as {:?}",
                        run.attempt, run.end
                    ));
                }
            }
        }
    }

    /// A verify begins while there is a doubt, and nothing can take effect any more but what was frozen.
    fn check_verify(&self, what: &str, id: &MilestoneId, action: &ActionRecord) {
        let settled = action.state == ActionState::InDoubt
            && action
                .settle_after
                .is_some_and(|after| after <= self.court.time());
        if !settled {
            self.log.wrong(format_args!(
                "{what}: a verify, and it is {:?} and settled after {:?}",
                action.state, action.settle_after
            ));
        }
        let inner = self.lock();
        let mut attempts = inner.of(id, &action.name, Phase::Do);
        if let Some(run) = attempts.find(|run| run.end.is_none() && !run.frozen) {
            self.log.wrong(format_args!(
                "{what}: a verify, and this still runs: {run:?}"
            ));
        }
    }

    /// Whether what begins is to run alone, from what is stored; and whether it does, and all others leave alone what is to. Once an attempt
    /// of a suspect has ended, it is none any more.
    fn runs_alone(
        &self,
        process: &str,
        context: &Context,
        record: Option<&MilestoneRecord>,
    ) -> bool {
        let id = context.milestone_id();
        let inner = self.lock();
        let here = || inner.runs.iter().filter(|run| run.process == process);
        // Of a verify only a verdict that it took effect clears what it is about.
        let has_ended = |id: &MilestoneId, epoch: i64| {
            here().any(|run| {
                let clears = run.phase != Phase::Verify || run.effect.is_some();
                run.id == *id && run.epoch == epoch && run.end.is_some() && clears
            })
        };
        let is_resolved = |id: &MilestoneId| {
            self.court.record(id).is_some_and(|record| {
                let answered = record.answers.iter().map(|answer| &*answer.order);
                let sent = record.inbox.iter().map(|command| command.order.name());
                answered.chain(sent).any(|order| order == "resolve")
            })
        };
        // One that has run alone for six leases is let go.
        let let_go = LEASE.as_millis() * 6;
        let is_let_go = |id: &MilestoneId| {
            here().any(|run| {
                run.id == *id && run.suspect && u128::from(self.log.now() - run.at) >= let_go
            })
        };
        let is_cleared =
            |id: &MilestoneId, epoch: i64| has_ended(id, epoch) || is_resolved(id) || is_let_go(id);
        let suspect =
            record.is_some_and(MilestoneRecord::is_suspect) && !is_cleared(id, context.epoch());
        for run in here().filter(|run| run.end.is_none() && run.id != *id) {
            let beside = run.suspect && !is_cleared(&run.id, run.epoch);
            if suspect || beside {
                self.log.wrong(format_args!(
                    "a suspect does not run alone: {id}/{} begins beside {run:?}",
                    context.action()
                ));
            }
        }
        suspect
    }

    /// What completed an action is what a body gave that did not fail, or what somebody has said.
    pub(crate) fn gave(&self, id: &MilestoneId, action: &str, output: &Bson) -> bool {
        let inner = self.lock();
        let mut runs = inner.of(id, action, Phase::Do);
        runs.any(|run| {
            let given = doc! { "of": action, "attempt": run.attempt, "by": &run.process };
            run.end == Some(End::Ok) && run.effect.is_some() && *output == Bson::from(given)
        })
    }

    /// From now on no body begins in that process.
    pub(crate) fn shut_down(&self, process: &str) {
        self.lock().closed.push(process.to_owned());
    }

    pub(crate) fn shutdowns(&self) -> usize {
        self.lock().closed.len()
    }

    /// The operator says, after a look at the ledger, that an attempt did not take effect.
    pub(crate) fn said_not_applied(&self, id: &MilestoneId, action: &str, attempt: i64) {
        self.lock()
            .not_applied
            .push((id.clone(), action.to_owned(), attempt));
    }

    /// Whether an action took effect; `None` while that may change.
    pub(crate) fn took_effect(&self, id: &MilestoneId, action: &str) -> Option<bool> {
        let inner = self.lock();
        let mut runs = inner.of(id, action, Phase::Do);
        if runs.clone().any(|run| run.end.is_none()) {
            return None;
        }
        Some(runs.any(|run| run.effect.is_some()))
    }

    /// The process is frozen now.
    pub(crate) fn freeze(&self, process: &str) {
        let mut inner = self.lock();
        let open = inner.runs.iter_mut().filter(|run| run.end.is_none());
        for run in open.filter(|run| run.process == process) {
            run.frozen = true;
        }
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.lock().runs.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn of<'a>(
        &'a self,
        id: &'a MilestoneId,
        action: &'a str,
        phase: Phase,
    ) -> impl Iterator<Item = &'a Run> + Clone {
        self.runs
            .iter()
            .filter(move |run| run.id == *id && run.action == action && run.phase == phase)
    }
}

/// A body that runs; dropped without an end, it was dropped in its middle.
pub(crate) struct Entry {
    ledger: Arc<Ledger>,
    index: usize,
}

impl Entry {
    /// It takes effect now. What is plain must not do that twice.
    pub(crate) fn effect(&self, repeatable: bool) {
        let mut inner = self.ledger.lock();
        inner.turn += 1;
        let turn = inner.turn;
        inner.runs[self.index].effect = Some(turn);
        let run = inner.runs[self.index].clone();
        let effects = inner
            .of(&run.id, &run.action, run.phase)
            .filter(|run| run.effect.is_some())
            .count();
        drop(inner);
        let (id, action, phase) = (&run.id, &run.action, run.phase);
        self.ledger.log.note(
            &run.process,
            format_args!("{id}/{action} {phase:?} {} takes effect", run.attempt),
        );
        if !repeatable && effects > 1 {
            self.ledger.log.wrong(format_args!(
                "{id}/{action} is plain and took effect {effects} times"
            ));
        }
    }

    /// What a verify says: whether the attempt that was in doubt when it began, or one before that, took effect; `None` while that may change.
    pub(crate) fn verdict(&self) -> Option<bool> {
        let mut inner = self.ledger.lock();
        let run = inner.runs[self.index].clone();
        let attempts: Vec<&Run> = inner
            .of(&run.id, &run.action, Phase::Do)
            .filter(|other| other.attempt <= run.doubted)
            .collect();
        if attempts.iter().any(|other| other.end.is_none()) {
            return None;
        }
        let applied = attempts.iter().any(|other| other.effect.is_some());
        if applied {
            let turn = inner.turn;
            inner.runs[self.index].effect = Some(turn);
        } else {
            inner.not_applied.push((run.id, run.action, run.doubted));
        }
        Some(applied)
    }

    pub(crate) fn end(&self, end: End) {
        let mut inner = self.ledger.lock();
        let run = &mut inner.runs[self.index];
        if run.end.is_some() {
            return;
        }
        run.end = Some(end);
        let run = run.clone();
        drop(inner);
        self.ledger.log.note(
            &run.process,
            format_args!(
                "body of {}/{} {:?} {} ends: {end:?}",
                run.id, run.action, run.phase, run.attempt
            ),
        );
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end(if std::thread::panicking() {
            End::Panic
        } else {
            End::Dropped
        });
    }
}
