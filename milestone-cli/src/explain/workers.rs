//! Which workers could do what is due.

use milestone_runtime::{MilestoneRecord, core::machine::DueTask, store::WorkerInfo};

use super::{Reason, Surroundings};
use crate::output::counted;

/// Which workers could do it.
pub(super) fn with_workers(
    reason: Reason,
    record: &MilestoneRecord,
    due: &DueTask<'_>,
    around: &Surroundings<'_>,
) -> Reason {
    let (method, queue) = (due.method, due.queue);
    let count = serving(due, around.workers);
    if count > 0 {
        let reason = reason.then(format!("{}, and can run it", living(count)));
        return match &record.lease {
            Some(lease) => reason.then(format!(
                "{} holds the milestone, and begins it when it has a free place",
                lease.owner
            )),
            None => reason,
        };
    }
    let reason = if around.workers.iter().any(|worker| has(worker, method)) {
        reason.then(format!(
            "no worker that has `{method}` serves the queue `{queue}`"
        ))
    } else {
        reason.then(format!("no worker has `{method}`"))
    };
    match around.workers.len() {
        0 => reason.then("no worker lives at all"),
        _ => reason.then(format!(
            "{}; start one whose binary has the action (a library's is there only if something names the crate)",
            living(around.workers.len())
        )),
    }
}

/// `1 worker lives`, `2 workers live`.
pub(crate) fn living(count: usize) -> String {
    let verb = if count == 1 { "lives" } else { "live" };
    format!("{} {verb}", counted(count as u64, "worker"))
}

/// How many workers could do it.
pub(crate) fn serving(due: &DueTask<'_>, workers: &[WorkerInfo]) -> usize {
    let serves = |worker: &&WorkerInfo| {
        has(worker, due.method) && worker.queues.iter().any(|queue| queue == due.queue)
    };
    workers.iter().filter(serves).count()
}

fn has(worker: &WorkerInfo, method: &str) -> bool {
    worker.methods.iter().any(|name| name == method)
}
