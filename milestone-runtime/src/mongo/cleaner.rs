//! Removes what the toolkit has left behind once it is of no more use. A worker knows its own traces; those of a worker that died are found
//! by a sweep, which every worker makes now and then.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bson::{Bson, DateTime};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::Instant,
};

use super::{
    fate::{Fate, View, fate},
    trace::{Trace, WitnessKey},
};
use crate::{
    engine::{Shared, message::Message},
    store::{
        StoreError,
        mongodb::{MongoStore, TRACES_AT_ONCE},
    },
};

/// A trace that is waited for.
#[derive(Debug)]
struct Entry {
    trace: Trace,
    look_at: Instant,
    stage: Stage,
    /// Whether it was found by a sweep, so that the next one finds it again.
    swept: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its milestone goes on, as far as is known.
    Needed,
    /// It has been of no more use since then.
    Over(DateTime),
    /// What it tells stands in a witness since then.
    Moved(DateTime),
}

/// What is to be done with a trace that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Remove,
    /// Look again then; with the stage that it has.
    Wait(Stage, Wait),
    /// Write a witness in the place of a marker.
    Move,
    /// It stays; nobody waits for it.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Until(DateTime),
    /// Nobody knows how long.
    Long,
}

/// What is to be done next. Pure.
fn step(entry: (&Trace, Stage), view: Option<&View>, now: DateTime, margin: Duration) -> Step {
    let (trace, stage) = entry;
    let after = |since: DateTime| {
        let margin = i64::try_from(margin.as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(since.timestamp_millis().saturating_add(margin))
    };
    match (fate(view, trace.action()), stage, trace) {
        (Fate::Over(since), stage, _) => {
            let since = match (since, stage) {
                (Some(since), _) | (None, Stage::Over(since)) => since,
                (None, _) => now,
            };
            if after(since) < now {
                Step::Remove
            } else {
                Step::Wait(Stage::Over(since), Wait::Until(after(since)))
            }
        }
        (Fate::Retriable, _, Trace::Witness(_)) => Step::Leave,
        (Fate::Retriable, Stage::Moved(since), _) if after(since) < now => Step::Remove,
        (Fate::Retriable, stage @ Stage::Moved(since), _) => {
            Step::Wait(stage, Wait::Until(after(since)))
        }
        (Fate::Retriable, _, Trace::Marker { .. }) => Step::Move,
        (Fate::Keep, ..) => Step::Wait(Stage::Needed, Wait::Long),
    }
}

/// Where traces are told to the cleaner.
#[derive(Clone, Debug)]
pub(crate) struct Traces(UnboundedSender<Trace>);

impl Traces {
    pub(crate) const fn new(sender: UnboundedSender<Trace>) -> Self {
        Self(sender)
    }

    /// Something was left behind, which is to be removed when it is of no more use.
    pub(crate) fn left(&self, trace: Trace) {
        // Without the cleaner the sweep of another worker finds it.
        let _ = self.0.send(trace);
    }
}

pub(crate) struct Cleaner {
    shared: Arc<Shared>,
    left: UnboundedReceiver<Trace>,
    tell: UnboundedSender<Message>,
    entries: HashMap<WitnessKey, Entry>,
    margin: Duration,
    sweep_at: Instant,
}

impl Cleaner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        left: UnboundedReceiver<Trace>,
        tell: UnboundedSender<Message>,
    ) -> Self {
        let margin = shared.config.clock_skew * 3 / 2;
        Self {
            shared,
            left,
            tell,
            entries: HashMap::new(),
            margin,
            // The first one soon, since an earlier process may have left something.
            sweep_at: Instant::now() + margin.mul_f64(fastrand::f64()),
        }
    }

    /// Works as long as the engine lives.
    pub(crate) async fn run(mut self) {
        loop {
            let wake = self.wake();
            tokio::select! {
                trace = self.left.recv() => match trace {
                    Some(trace) => self.take(trace),
                    None => return,
                },
                () = tokio::time::sleep_until(wake) => {}
            }
            if self.tell.is_closed() {
                return;
            }
            while let Ok(trace) = self.left.try_recv() {
                self.take(trace);
            }
            if let Err(error) = self.clean().await {
                tracing::debug!(%error, "markers and witnesses cannot be looked after now; it is tried again");
            }
        }
    }

    fn wake(&self) -> Instant {
        // Now and then it looks whether anybody is still there.
        let soon = Instant::now() + self.margin.min(Duration::from_secs(5));
        let first = self.entries.values().map(|entry| entry.look_at).min();
        first
            .map_or(soon, |first| first.min(soon))
            .min(self.sweep_at.max(Instant::now()))
    }

    /// A short milestone is over by the time when it is looked at.
    fn take(&mut self, trace: Trace) {
        let look_at = Instant::now() + self.margin * 11 / 10;
        self.insert(trace, look_at, false);
    }

    fn insert(&mut self, trace: Trace, look_at: Instant, swept: bool) {
        self.entries.entry(trace.key()).or_insert(Entry {
            trace,
            look_at,
            stage: Stage::Needed,
            swept,
        });
    }

    async fn clean(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let Some(store) = shared.store.mongodb() else {
            return Ok(());
        };
        if self.sweep_at <= Instant::now() {
            // Also if it fails: a server that is away is not asked again and again.
            self.sweep_at = Instant::now() + self.margin.mul_f64(0.5 + fastrand::f64());
            self.sweep(store).await?;
        }
        loop {
            let now = Instant::now();
            let due = self
                .entries
                .iter()
                .filter(|(_, entry)| entry.look_at <= now);
            let due: Vec<WitnessKey> = due
                .map(|(key, _)| key.clone())
                .take(TRACES_AT_ONCE)
                .collect();
            if due.is_empty() {
                return Ok(());
            }
            // Also if it fails.
            for key in &due {
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.look_at = now + self.margin / 10;
                }
            }
            self.look(store, due).await?;
        }
    }

    /// Looks after traces whose time has come.
    async fn look(&mut self, store: &MongoStore, due: Vec<WitnessKey>) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let mut ids: Vec<_> = due.iter().map(|key| key.milestone.clone()).collect();
        ids.sort();
        ids.dedup();
        let views = store.views(&ids).await?;
        let mut over = Vec::new();
        for key in due {
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            let view = views.get(entry.trace.milestone());
            match step((&entry.trace, entry.stage), view, now, self.margin) {
                Step::Remove => over.push(key),
                Step::Leave => {
                    self.entries.remove(&key);
                }
                Step::Move => {
                    store.witness(&key, Bson::Boolean(true), now).await?;
                    entry.stage = Stage::Moved(self.shared.clock.latest());
                    entry.look_at = Instant::now() + self.margin * 11 / 10;
                }
                Step::Wait(_, Wait::Long) if entry.swept => {
                    self.entries.remove(&key);
                }
                Step::Wait(stage, wait) => {
                    entry.stage = stage;
                    let wait = match wait {
                        Wait::Until(at) => self.shared.clock.wait_until(at),
                        Wait::Long => self.margin,
                    };
                    entry.look_at = Instant::now() + wait;
                }
            }
        }
        let traces: Vec<Trace> = over
            .iter()
            .filter_map(|key| self.entries.get(key))
            .map(|entry| entry.trace.clone())
            .collect();
        if !traces.is_empty() {
            store.remove_traces(&traces).await?;
        }
        for key in over {
            self.entries.remove(&key);
        }
        Ok(())
    }

    /// Finds what others have left behind.
    async fn sweep(&mut self, store: &MongoStore) -> Result<(), StoreError> {
        let now = Instant::now();
        let margin = i64::try_from(self.margin.as_millis()).unwrap_or(i64::MAX);
        let old = self
            .shared
            .clock
            .now()
            .timestamp_millis()
            .saturating_sub(2 * margin);
        let old = DateTime::from_millis(old);
        for namespace in store.marked().await? {
            let mut from = DateTime::MIN;
            loop {
                let (found, next) = store.old_markers(&namespace, from, old).await?;
                for trace in found {
                    self.insert(trace, now, true);
                }
                // Those of one and the same millisecond are found the next time.
                match next {
                    Some(next) if next > from => from = next,
                    _ => break,
                }
            }
        }
        let mut behind: Option<WitnessKey> = None;
        loop {
            let found = store.old_witnesses(behind.as_ref(), old).await?;
            let Some(last) = found.last().cloned() else {
                return Ok(());
            };
            for key in found {
                self.insert(Trace::Witness(key), now, true);
            }
            behind = Some(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use milestone_core::record::{ActionState, Status};

    use super::*;
    use crate::mongo::trace::{Marker, Place};

    const MARGIN: Duration = Duration::from_millis(100);

    fn at(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    fn view(state: Status, action: ActionState) -> View {
        View {
            state,
            end_date: state.is_terminal().then(|| at(1_000)),
            actions: vec![("debit".to_owned(), action, false)],
        }
    }

    fn marker() -> Trace {
        let place = Place {
            database: "bank".to_owned(),
            collection: "accounts".to_owned(),
            id: Bson::from("ann"),
        };
        let marker = Marker {
            milestone: "t-1".into(),
            started: DateTime::from_millis(3),
            action: "debit".to_owned(),
            label: String::new(),
            undone: false,
        };
        Trace::Marker { place, marker }
    }

    fn look(trace: &Trace, stage: Stage, view: Option<&View>, now: i64) -> Step {
        step((trace, stage), view, at(now), MARGIN)
    }

    #[test]
    fn a_marker_goes_when_its_milestone_has_been_over_for_the_margin() {
        let done = view(Status::Completed, ActionState::Completed);
        let until = Wait::Until(at(1_100));
        let over = Stage::Over(at(1_000));
        assert_eq!(
            look(&marker(), Stage::Needed, Some(&done), 1_100),
            Step::Wait(over, until)
        );
        assert_eq!(look(&marker(), over, Some(&done), 1_101), Step::Remove);
    }

    #[test]
    fn without_a_date_the_margin_counts_from_the_first_look() {
        for view in [None, Some(view(Status::Running, ActionState::Completed))] {
            let over = Stage::Over(at(5_000));
            let wait = Step::Wait(over, Wait::Until(at(5_100)));
            assert_eq!(look(&marker(), Stage::Needed, view.as_ref(), 5_000), wait);
            assert_eq!(look(&marker(), over, view.as_ref(), 5_100), wait);
            assert_eq!(look(&marker(), over, view.as_ref(), 5_101), Step::Remove);
        }
    }

    #[test]
    fn what_a_marker_tells_of_a_failed_milestone_is_moved_and_then_it_goes() {
        let failed = view(Status::Failed, ActionState::Failed);
        assert_eq!(
            look(&marker(), Stage::Needed, Some(&failed), 2_000),
            Step::Move
        );
        let moved = Stage::Moved(at(2_000));
        assert_eq!(
            look(&marker(), moved, Some(&failed), 2_050),
            Step::Wait(moved, Wait::Until(at(2_100)))
        );
        assert_eq!(look(&marker(), moved, Some(&failed), 2_101), Step::Remove);
        let witness = Trace::Witness(marker().key());
        assert_eq!(
            look(&witness, Stage::Needed, Some(&failed), 9_000),
            Step::Leave
        );
    }

    #[test]
    fn a_retry_stops_the_removal() {
        let running = view(Status::Running, ActionState::Running);
        let moved = Stage::Moved(at(2_000));
        assert_eq!(
            look(&marker(), moved, Some(&running), 9_000),
            Step::Wait(Stage::Needed, Wait::Long)
        );
    }
}
