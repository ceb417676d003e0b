//! Who may work on a milestone: how it is taken.

use bson::{DateTime, doc};

use crate::{
    patch::Patch,
    record::{ActionState, Due, Lease, MilestoneRecord, Next, UndoState},
};

/// What was seen of a milestone when the decision to take it was made. The write that takes it filters on all of it with plain
/// equality, so that a commit, a renewal or a command in between makes it miss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The `rev`.
    pub rev: i64,
    /// The `epoch`.
    pub epoch: i64,
    /// The `mail`.
    pub mail: i64,
    /// The token and the end of the lease, if there is one.
    pub lease: Option<(String, DateTime)>,
}

impl Seen {
    /// What is to be seen of a record.
    #[must_use]
    pub fn of(record: &MilestoneRecord) -> Self {
        Self {
            rev: record.rev,
            epoch: record.epoch,
            mail: record.mail,
            lease: record
                .lease
                .as_ref()
                .map(|lease| (lease.token.clone(), lease.until)),
        }
    }
}

/// Takes a milestone: gives it the lease, one epoch more, and the one due entry that a held milestone has. If a lease ended while
/// attempts ran, that is counted in the same write. The event [`crate::machine::Event::TakenOver`] comes next.
pub fn claim(record: &mut MilestoneRecord, lease: Lease) -> Patch {
    let mut patch = Patch::default();
    if record.lease.is_some() && attempts_run(record) {
        record.losses = record.losses.saturating_add(1);
        patch.set("losses", record.losses);
    }
    record.epoch = record.epoch.saturating_add(1);
    patch.set("epoch", record.epoch);
    hold_by(record, lease, &mut patch);
    patch
}

/// Writes the lease, and the entries of a milestone that is held.
pub(crate) fn hold_by(record: &mut MilestoneRecord, lease: Lease, patch: &mut Patch) {
    let queue = record.next.as_ref().map_or_else(
        || crate::record::DEFAULT_QUEUE.to_owned(),
        |next| next.queue.clone(),
    );
    let until = lease.until;
    record.due = vec![Due {
        queue: queue.clone(),
        at: until,
        method: String::new(),
    }];
    record.next = Some(Next {
        queue: queue.clone(),
        at: until,
    });
    patch.set(
        "due",
        vec![doc! { "queue": queue.clone(), "at": until, "method": "" }],
    );
    patch.set("next", doc! { "queue": queue, "at": until });
    patch.set(
        "lease",
        doc! { "owner": &lease.owner, "token": &lease.token, "since": lease.since, "until": lease.until },
    );
    record.lease = Some(lease);
}

fn attempts_run(record: &MilestoneRecord) -> bool {
    record.actions.iter().any(|action| {
        action.state == ActionState::Running
            || action
                .undo
                .as_ref()
                .is_some_and(|undo| undo.state == UndoState::Running)
    })
}
