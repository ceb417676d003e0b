//! Who may work on a milestone: how it is taken.

use bson::{DateTime, doc};

use crate::{
    patch::Patch,
    record::{ActionRecord, Due, Lease, MilestoneRecord, Next},
};

/// From so many losses in a row on, a milestone is a suspect: it may be what kills its workers, so it is run alone.
pub const SUSPECT_FROM: i64 = 2;

/// How many losses of a suspect that ran alone are borne.
pub const ALONE: i64 = 5;

/// From so many losses in a row on, a milestone is parked.
pub const PARKED_FROM: i64 = SUSPECT_FROM + ALONE;

impl MilestoneRecord {
    /// Whether it may be what kills its workers: the last [`SUSPECT_FROM`] of them were lost while they ran it. Such a one is run alone, so
    /// that it takes nothing else with it, and so that what it takes along is not suspected as well.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.losses >= SUSPECT_FROM
    }
}

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
    record.actions.iter().any(ActionRecord::is_running)
}
