//! Removes what the toolkit has left behind once it is of no more use. A worker knows its own traces; those of a worker that died are found
//! by a sweep, which every worker makes now and then.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use bson::{Bson, DateTime};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::Instant,
};

use super::{
    fate::{Fate, Found, fate},
    trace::{Trace, WitnessKey},
};
use crate::{
    engine::{Shared, message::Message},
    store::{
        StoreError,
        mongodb::{MongoStore, OldTraces, TRACES_AT_ONCE},
    },
};

/// A trace that is waited for.
#[derive(Debug)]
struct Entry {
    trace: Trace,
    look_at: Instant,
    stage: Stage,
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
    Wait(Stage, DateTime),
    /// Write a witness in the place of a marker.
    Move,
    /// It stays, and nobody knows how long: a sweep finds it again.
    Leave,
}

/// What is to be done next. Pure.
fn step(entry: (&Trace, Stage), found: &Found, now: DateTime, margin: Duration) -> Step {
    let (trace, stage) = entry;
    let after = |since: DateTime| {
        let margin = i64::try_from(margin.as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(since.timestamp_millis().saturating_add(margin))
    };
    match (fate(found, trace.action()), stage, trace) {
        (Fate::Over(since), stage, _) => {
            let since = match (since, stage) {
                (Some(since), _) | (None, Stage::Over(since)) => since,
                (None, _) => now,
            };
            if after(since) < now {
                Step::Remove
            } else {
                Step::Wait(Stage::Over(since), after(since))
            }
        }
        (Fate::Retriable, Stage::Moved(since), _) if after(since) < now => Step::Remove,
        (Fate::Retriable, stage @ Stage::Moved(since), _) => Step::Wait(stage, after(since)),
        (Fate::Retriable, _, Trace::Marker { .. }) => Step::Move,
        (Fate::Keep, ..) | (Fate::Retriable, _, Trace::Witness(_)) => Step::Leave,
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
    entries: HashMap<Arc<WitnessKey>, Entry>,
    /// When each of them is looked at.
    agenda: BTreeSet<(Instant, Arc<WitnessKey>)>,
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
            agenda: BTreeSet::new(),
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
        let first = self.agenda.first().map_or(soon, |(at, _)| *at);
        first.min(soon).min(self.sweep_at)
    }

    /// A short milestone is over by the time when it is looked at.
    fn take(&mut self, trace: Trace) {
        let look_at = Instant::now() + self.margin * 11 / 10;
        self.insert(trace, look_at);
    }

    fn insert(&mut self, trace: Trace, look_at: Instant) {
        let key = Arc::new(trace.key());
        if self.entries.contains_key(&key) {
            return;
        }
        self.agenda.insert((look_at, Arc::clone(&key)));
        self.entries.insert(
            key,
            Entry {
                trace,
                look_at,
                stage: Stage::Needed,
            },
        );
    }

    fn look_again(&mut self, key: &Arc<WitnessKey>, stage: Stage, look_at: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.agenda.remove(&(entry.look_at, Arc::clone(key)));
            self.agenda.insert((look_at, Arc::clone(key)));
            (entry.stage, entry.look_at) = (stage, look_at);
        }
    }

    fn forget(&mut self, key: &Arc<WitnessKey>) -> Option<Trace> {
        let entry = self.entries.remove(key)?;
        self.agenda.remove(&(entry.look_at, Arc::clone(key)));
        Some(entry.trace)
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
        self.look_after_all_due(store).await
    }

    async fn look_after_all_due(&mut self, store: &MongoStore) -> Result<(), StoreError> {
        loop {
            let now = Instant::now();
            let due = self.agenda.iter().take_while(|(at, _)| *at <= now);
            let due: Vec<_> = due
                .map(|(_, key)| Arc::clone(key))
                .take(TRACES_AT_ONCE)
                .collect();
            if due.is_empty() {
                return Ok(());
            }
            // Also if it fails.
            for key in &due {
                let stage = self.entries.get(key).map(|entry| entry.stage);
                self.look_again(key, stage.unwrap_or(Stage::Needed), now + self.margin / 10);
            }
            self.look(store, due).await?;
        }
    }

    /// Looks after traces whose time has come.
    async fn look(
        &mut self,
        store: &MongoStore,
        due: Vec<Arc<WitnessKey>>,
    ) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let mut ids: Vec<_> = due.iter().map(|key| key.milestone.clone()).collect();
        ids.sort();
        ids.dedup();
        let found = store.views(&ids).await?;
        let mut over = Vec::new();
        for key in due {
            let Some(entry) = self.entries.get(&key) else {
                continue;
            };
            let found = found.get(&key.milestone).unwrap_or(&Found::Gone);
            match step((&entry.trace, entry.stage), found, now, self.margin) {
                Step::Remove => over.extend(self.forget(&key)),
                Step::Leave => {
                    self.forget(&key);
                }
                Step::Move => match store.witness(&key, Bson::Boolean(true), now).await {
                    Ok(_) => {
                        let moved = Stage::Moved(self.shared.clock.latest());
                        self.look_again(&key, moved, Instant::now() + self.margin * 11 / 10);
                    }
                    Err(error) => {
                        tracing::debug!(%error, milestone = %key.milestone, "what a marker tells cannot be noted elsewhere now");
                    }
                },
                Step::Wait(stage, at) => {
                    let wait = self.shared.clock.wait_until(at);
                    self.look_again(&key, stage, Instant::now() + wait);
                }
            }
        }
        if over.is_empty() {
            return Ok(());
        }
        store.remove_traces(&over).await
    }

    /// Finds what others have left behind, and what has been needed for long.
    async fn sweep(&mut self, store: &MongoStore) -> Result<(), StoreError> {
        let margin = i64::try_from(self.margin.as_millis()).unwrap_or(i64::MAX);
        let now = self.shared.clock.now().timestamp_millis();
        let old = DateTime::from_millis(now.saturating_sub(margin.saturating_mul(2)));
        for namespace in store.marked().await? {
            let swept = match store.old_markers(&namespace, old).await {
                Ok(found) => self.sweep_up(store, found).await,
                Err(error) => Err(error),
            };
            if let Err(error) = swept {
                // It keeps nobody from the others.
                tracing::debug!(%error, %namespace, "old markers cannot be looked for now");
            }
        }
        let found = store.old_witnesses(old).await?;
        self.sweep_up(store, found).await
    }

    async fn sweep_up(
        &mut self,
        store: &MongoStore,
        mut found: OldTraces,
    ) -> Result<(), StoreError> {
        loop {
            let traces = found.next().await?;
            if traces.is_empty() {
                return Ok(());
            }
            let now = Instant::now();
            for trace in traces {
                self.insert(trace, now);
            }
            self.look_after_all_due(store).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use milestone_core::record::{ActionState, Status};

    use super::*;
    use crate::mongo::{
        fate::View,
        trace::{Marker, Place},
    };

    const MARGIN: Duration = Duration::from_millis(100);

    fn at(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    fn view(state: Status, action: ActionState) -> Found {
        Found::Seen(View {
            state,
            end_date: state.is_terminal().then(|| at(1_000)),
            actions: vec![("debit".to_owned(), action, false)],
        })
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

    fn look(trace: &Trace, stage: Stage, found: &Found, now: i64) -> Step {
        step((trace, stage), found, at(now), MARGIN)
    }

    #[test]
    fn a_marker_goes_when_its_milestone_has_been_over_for_the_margin() {
        let done = view(Status::Completed, ActionState::Completed);
        let until = at(1_100);
        let over = Stage::Over(at(1_000));
        assert_eq!(
            look(&marker(), Stage::Needed, &done, 1_100),
            Step::Wait(over, until)
        );
        assert_eq!(look(&marker(), over, &done, 1_101), Step::Remove);
    }

    #[test]
    fn without_a_date_the_margin_counts_from_the_first_look() {
        for view in [Found::Gone, view(Status::Running, ActionState::Completed)] {
            let over = Stage::Over(at(5_000));
            let wait = Step::Wait(over, at(5_100));
            assert_eq!(look(&marker(), Stage::Needed, &view, 5_000), wait);
            assert_eq!(look(&marker(), over, &view, 5_100), wait);
            assert_eq!(look(&marker(), over, &view, 5_101), Step::Remove);
        }
    }

    #[test]
    fn what_a_marker_tells_of_a_failed_milestone_is_moved_and_then_it_goes() {
        let failed = view(Status::Failed, ActionState::Failed);
        assert_eq!(look(&marker(), Stage::Needed, &failed, 2_000), Step::Move);
        let moved = Stage::Moved(at(2_000));
        assert_eq!(
            look(&marker(), moved, &failed, 2_050),
            Step::Wait(moved, at(2_100))
        );
        assert_eq!(look(&marker(), moved, &failed, 2_101), Step::Remove);
        let witness = Trace::Witness(marker().key());
        assert_eq!(look(&witness, Stage::Needed, &failed, 9_000), Step::Leave);
    }

    #[test]
    fn a_retry_stops_the_removal() {
        let running = view(Status::Running, ActionState::Running);
        let moved = Stage::Moved(at(2_000));
        assert_eq!(look(&marker(), moved, &running, 9_000), Step::Leave);
    }
}
