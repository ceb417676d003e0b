//! One pass over all that is due, and its report.

use std::{collections::BTreeMap, time::Duration};

use bson::{Bson, DateTime, Document};
use milestone_core::record::{AttemptError, MilestoneId, MilestoneRecord, Status};
use tokio::{sync::oneshot, time::Instant};

/// What one pass of [`Runtime::run_once`](crate::Runtime::run_once) has done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunReport {
    /// How many milestones were due and taken.
    pub found: usize,
    /// How many of them are complete now.
    pub resolved: usize,
    /// How many of them had an attempt that failed, so that they ended otherwise or wait for a retry.
    pub rejected: usize,
    /// How long the pass took.
    pub elapsed: Duration,
    /// Each of them, in the order in which they were done.
    pub items: Vec<RunItem>,
}

/// One milestone of a [`RunReport`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunItem {
    /// Its id.
    pub id: MilestoneId,
    /// The name of its type.
    pub kind: String,
    /// What it was started with.
    pub parameters: Bson,
    /// Its state after the pass.
    pub state: Status,
    /// The outputs of its actions, by name.
    pub output: Document,
    /// The error of the newest failed attempt, if it is not complete.
    pub error: Option<AttemptError>,
    /// How long it was worked on.
    pub elapsed: Duration,
}

/// A pass that goes on.
pub(super) struct Pass {
    pub(super) cutoff: DateTime,
    pub(super) began: Instant,
    pub(super) taken: BTreeMap<MilestoneId, Instant>,
    pub(super) exhausted: bool,
    report: RunReport,
    reply: Option<oneshot::Sender<RunReport>>,
}

impl Pass {
    pub(super) fn new(cutoff: DateTime, reply: oneshot::Sender<RunReport>) -> Self {
        Self {
            cutoff,
            began: Instant::now(),
            taken: BTreeMap::new(),
            exhausted: false,
            report: RunReport::default(),
            reply: Some(reply),
        }
    }

    pub(super) fn take(&mut self, id: MilestoneId) {
        self.report.found += 1;
        self.taken.insert(id, Instant::now());
    }

    /// A milestone of the pass is no longer held.
    pub(super) fn done(&mut self, record: &MilestoneRecord, parameters: Bson) {
        let Some(since) = self.taken.remove(&record.id) else {
            return;
        };
        let resolved = record.state == Status::Completed;
        let failed = record
            .report
            .iter()
            .find(|attempt| attempt.success != Some(true));
        let error = failed
            .filter(|_| !resolved)
            .map(|attempt| attempt.error.clone().unwrap_or_default());
        self.report.resolved += usize::from(resolved);
        self.report.rejected += usize::from(error.is_some());
        self.report.items.push(RunItem {
            id: record.id.clone(),
            kind: record.kind.clone(),
            parameters,
            state: record.state,
            output: record.outputs(),
            error,
            elapsed: since.elapsed(),
        });
    }

    pub(super) fn is_over(&self) -> bool {
        self.exhausted && self.taken.is_empty()
    }

    pub(super) fn finish(mut self) {
        self.report.elapsed = self.began.elapsed();
        if let Some(reply) = self.reply.take() {
            // Nobody wants to know any more: the work is done all the same.
            let _ = reply.send(self.report);
        }
    }
}
