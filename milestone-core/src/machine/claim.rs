//! Taking a milestone and beginning what is due of it in the same write.

use std::collections::BTreeSet;

use bson::DateTime;

use super::{Event, advance, due_tasks};
use crate::{
    lease,
    limits::Limits,
    patch::Patch,
    record::{ActionRecord, Lease, MilestoneRecord, Phase},
};

/// What a claim may begin in the write that takes a milestone, so that the first attempt costs no write of its own.
///
/// Only what may run twice is begun so: if the reply is lost for longer than a lease, nobody knows of the attempt, and a plain action
/// would be in doubt though its body never ran.
#[derive(Clone, Debug)]
pub struct Begins {
    /// The methods that may begin, by name: those that the worker has without a limit of their own, idempotent or transactional.
    pub methods: BTreeSet<String>,
    /// The time, as the worker estimates the server's.
    pub now: DateTime,
    /// What limits the report and the errors in it.
    pub limits: Limits,
}

/// Takes a milestone as [`lease::claim`] does, and begins the first action of it that is due, if that may be begun so: one that may run
/// twice, of a milestone that is no suspect, that has no unread command, and in which nothing ran when its lease ended. The rest
/// begins, as after any claim, once the worker has looked at it.
///
/// ```
/// # use bson::DateTime;
/// # use milestone_core::{graph::{Action, Resolved}, limits::Limits, machine::{Begins, NewMilestone, claim}, record::{Lease, MilestoneRecord}};
/// # let (now, limits) = (DateTime::from_millis(0), Limits::new());
/// # let plan = Action::new("debit").into_plan(|_| Some(Resolved::idempotent())).unwrap();
/// # let mut record = MilestoneRecord::new(NewMilestone::new("Transfer", plan), now, &limits).unwrap();
/// # let lease = Lease { owner: "w".into(), token: "t".into(), since: now, until: now };
/// let begins = Begins { methods: ["debit".to_owned()].into(), now, limits };
/// let patch = claim(&mut record, lease, Some(&begins));
/// assert_eq!(patch.value("actions.0.state"), Some(&"running".into()));
/// ```
pub fn claim(record: &mut MilestoneRecord, lease: Lease, begins: Option<&Begins>) -> Patch {
    let ran = record.actions.iter().any(ActionRecord::is_running);
    let owner = lease.owner.clone();
    let mut patch = lease::claim(record, lease);
    let Some(begins) = begins else {
        return patch;
    };
    if ran || record.is_suspect() || !record.inbox.is_empty() {
        return patch;
    }
    let first = due_tasks(record).into_iter().find(|due| {
        due.task.phase == Phase::Do
            && due.at.is_none_or(|at| at <= begins.now)
            && record.actions[due.task.action].mode.repeatable()
            && begins.methods.contains(due.method)
    });
    if let Some(task) = first.map(|due| due.task) {
        let event = Event::Begin {
            tasks: vec![task],
            worker: owner,
        };
        // What cannot begin, since the deadline has passed, is left for the worker to look at.
        if let Ok(begun) = advance(record, event, begins.now, &begins.limits) {
            patch.merge(begun);
        }
    }
    patch
}
