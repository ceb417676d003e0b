//! What the bodies of actions did: when they began, took effect and ended, and what of that must not be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use milestone_runtime::{
    action::Context,
    core::record::{ActionState, MilestoneId, Phase},
};

use super::{court::Court, log::Log};

/// One call of a body.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: MilestoneId,
    pub(crate) action: String,
    pub(crate) phase: Phase,
    pub(crate) attempt: i64,
    /// The process that it runs in.
    pub(crate) process: String,
    /// The turn in which it began.
    pub(crate) begun: u64,
    /// The turn in which it took effect.
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
    /// Attempts of which the operator has said that they did not take effect, and was right.
    not_applied: Vec<(MilestoneId, String, i64)>,
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
        let mut inner = self.lock();
        inner.turn += 1;
        let run = Run {
            id,
            action,
            phase,
            attempt,
            process: process.to_owned(),
            begun: inner.turn,
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
        let running = match context.phase() {
            Phase::Do => action.running.as_ref(),
            _ => action.undo.as_ref().and_then(|undo| undo.running.as_ref()),
        };
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
