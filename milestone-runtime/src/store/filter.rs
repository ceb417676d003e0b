//! Which milestones are meant, and what is told of many.

use std::collections::BTreeMap;

use bson::DateTime;
use milestone_core::record::{MilestoneId, MilestoneRecord, Status, Unreadable};

use super::{Store, StoreError};

/// Which milestones are meant; an empty filter is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// One of these; empty is any.
    pub ids: Vec<MilestoneId>,
    /// Of this type.
    pub kind: Option<String>,
    /// In one of these states; empty is any.
    pub states: Vec<Status>,
    /// With these labels.
    pub labels: Vec<(String, String)>,
    /// Started at this time or later.
    pub created_after: Option<DateTime>,
    /// Started before this time.
    pub created_before: Option<DateTime>,
    /// On hold.
    pub on_hold: bool,
}

impl Filter {
    /// All milestones.
    pub fn new() -> Self {
        Self::default()
    }

    /// This one, or one named by another call.
    #[must_use]
    pub fn id(mut self, id: impl Into<MilestoneId>) -> Self {
        self.ids.push(id.into());
        self
    }

    /// Of this type.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// In this state, or one named by another call.
    #[must_use]
    pub fn state(mut self, state: Status) -> Self {
        self.states.push(state);
        self
    }

    /// Those that have not ended.
    pub fn unfinished() -> Self {
        let states = Status::ALL.into_iter().filter(|state| !state.is_terminal());
        Self {
            states: states.collect(),
            ..Self::default()
        }
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Started at this time or later; times are the database server's.
    #[must_use]
    pub const fn created_after(mut self, time: DateTime) -> Self {
        self.created_after = Some(time);
        self
    }

    /// Started before this time.
    #[must_use]
    pub const fn created_before(mut self, time: DateTime) -> Self {
        self.created_before = Some(time);
        self
    }

    /// On hold: paused, or parked.
    #[must_use]
    pub const fn on_hold(mut self) -> Self {
        self.on_hold = true;
        self
    }
}

/// Which part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Only those behind this one.
    pub after: Option<MilestoneId>,
    /// How many at the most. Default 100.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            after: None,
            limit: 100,
        }
    }
}

/// A part of a list.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The milestones.
    pub records: Vec<MilestoneRecord>,
    /// Those that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page begins, if there is one.
    pub next: Option<MilestoneId>,
}

/// How many milestones of one type are in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The type.
    pub kind: String,
    /// The state as it is stored: a newer version may have written one that this version does not know.
    pub state: String,
    /// How many there are.
    pub count: u64,
    /// How many of them are on hold.
    pub on_hold: u64,
    /// When the oldest of them was started; of a terminal state it is not told, since nobody waits there.
    pub oldest: Option<DateTime>,
}

/// Adds milestones up, by type and state.
#[derive(Debug, Default)]
pub(super) struct Tallies(BTreeMap<(String, String), Tally>);

impl Tallies {
    pub(super) fn add(
        &mut self,
        kind: &str,
        state: &str,
        on_hold: bool,
        created_at: Option<DateTime>,
    ) {
        let tally = self
            .0
            .entry((kind.to_owned(), state.to_owned()))
            .or_insert_with(|| Tally {
                kind: kind.to_owned(),
                state: state.to_owned(),
                ..Tally::default()
            });
        tally.count += 1;
        tally.on_hold += u64::from(on_hold);
        if !is_terminal(state) {
            tally.oldest = [tally.oldest, created_at].into_iter().flatten().min();
        }
    }

    pub(super) fn into_vec(self) -> Vec<Tally> {
        self.0.into_values().collect()
    }
}

/// Whether the state of that name is a terminal one.
pub(super) fn is_terminal(state: &str) -> bool {
    Status::ALL
        .into_iter()
        .any(|status| status.as_str() == state && status.is_terminal())
}

/// Counts what can be read, page by page.
pub(super) async fn tally<S: Store + ?Sized>(
    store: &S,
    filter: Filter,
) -> Result<Vec<Tally>, StoreError> {
    let mut tallies = Tallies::default();
    let mut page = Page::default();
    loop {
        let listed = store.list(filter.clone(), page.clone()).await?;
        for record in listed.records {
            tallies.add(
                &record.kind,
                record.state.as_str(),
                record.hold.is_some(),
                Some(record.created_at),
            );
        }
        match listed.next {
            Some(next) => page.after = Some(next),
            None => return Ok(tallies.into_vec()),
        }
    }
}
