//! The crash sweep: a worker is killed before and after each of its writes, and so is the one that takes over. What is left agrees
//! with itself and with what the bodies did (F10), and what every kind of action promises is kept.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use futures_util::future::join_all;
use milestone_runtime::{
    Handle, Runtime,
    core::{
        machine,
        record::{ActionState, MilestoneRecord, Status},
    },
};
use milestone_tests::{
    doomed::Moment,
    journal::{self, Entry, Journal, What},
    look::patiently,
    place::{Kind, Place},
    sweep::{SCENARIOS, Scenario, graph, with_actions},
    verdict::{by_milestone, judge},
};
use tempfile::TempDir;
use tokio::process::Command;

#[test]
fn f10_killed_at_every_write_on_sqlite() {
    run(Kind::Sqlite);
}

#[test]
fn f10_killed_at_every_write_on_mongodb() {
    run(Kind::MongoDb);
}

/// Several hundred processes come and go, so it may take longer than other tests: half a minute on two idle cores.
fn run(kind: Kind) {
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        tokio::time::timeout(Duration::from_mins(15), killed_at_every_write(kind))
            .await
            .expect("the test hangs");
    });
}

async fn killed_at_every_write(kind: Kind) {
    let sweeps = SCENARIOS.iter().flat_map(|scenario| {
        [Moment::Before, Moment::After].map(|moment| async move {
            let sweep = Sweep::new(kind, *scenario).await;
            let kills = sweep.run(moment).await;
            println!("{scenario:?}, {moment:?}: {kills:?} kills");
            kills
        })
    });
    let kills = join_all(sweeps).await;
    let (first, second): (Vec<usize>, Vec<usize>) = kills.into_iter().unzip();
    // An insert and three commits are the fewest writes of any of them.
    assert!(first.iter().all(|kills| *kills >= 4), "{first:?}");
    assert!(second.iter().sum::<usize>() >= first.len(), "{second:?}");
}

/// One graph in a place of its own.
struct Sweep {
    scenario: Scenario,
    place: Place,
    folder: TempDir,
    /// Takes over what the dead leave. It works only when they are dead.
    heir: Runtime,
}

impl Sweep {
    async fn new(kind: Kind, scenario: Scenario) -> Self {
        let place = Place::new(kind).await;
        let folder = TempDir::new().unwrap();
        let journal = Arc::new(Journal::open(&folder.path().join("journal")).unwrap());
        let heir = patiently(async || {
            let builder = place.builder().lease(Duration::from_millis(300));
            with_actions(builder, &journal).build().await
        })
        .await;
        Self {
            scenario,
            place,
            folder,
            heir,
        }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    fn entries(&self, id: &str) -> Vec<Entry> {
        by_milestone(journal::read(&self.journal()))
            .remove(id)
            .unwrap_or_default()
    }

    /// Kills at one write after the other until there is none left, and says how often the first and the second worker were killed.
    async fn run(&self, moment: Moment) -> (usize, usize) {
        let mut seconds = 0;
        for write in 1.. {
            let id = format!("{moment:?}-{write}");
            if !self.scenario.starts {
                self.start(&id).await;
            }
            let starts = self.scenario.starts.then_some(self.scenario.name);
            if self.is_killed(&id, write, moment, starts).await {
                // If nothing was stored, there is nothing to take over.
                let stored = self.get(&id).await;
                if stored.is_some_and(|record| record.next.is_some())
                    && self.is_killed(&id, write % 4 + 1, moment, None).await
                {
                    seconds += 1;
                }
                self.recover(&id).await;
            } else {
                self.check(&id, 1).await;
                return (write - 1, seconds);
            }
        }
        unreachable!("it returns where a worker is not killed");
    }

    /// Lets a worker run until it kills itself, or until nothing more happens.
    async fn is_killed(&self, id: &str, at: usize, moment: Moment, starts: Option<&str>) -> bool {
        let moment = match moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        let child = Command::new(env!("CARGO_BIN_EXE_doomed"))
            .arg(self.place.uri())
            .arg(self.journal())
            .args([id, &at.to_string(), moment])
            .args(starts)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .status();
        let Ok(status) = tokio::time::timeout(Duration::from_mins(2), child).await else {
            let record = self.heir.get(id).await;
            panic!(
                "{}: a worker that is to end {moment} write {at} is stuck: {record:#?}",
                self.called(id)
            );
        };
        let status = status.unwrap();
        let killed = status.code().is_none();
        assert!(status.success() || killed, "{}: {status}", self.called(id));
        killed
    }

    /// What it is called in a failure.
    fn called(&self, id: &str) -> String {
        format!("{id} of {:?}", self.scenario)
    }

    async fn start(&self, id: &str) -> Handle<bson::Document> {
        patiently(async || {
            let start = self.heir.start("Sweep", graph(self.scenario.name), ());
            start.id(id).await
        })
        .await
    }

    async fn get(&self, id: &str) -> Option<MilestoneRecord> {
        patiently(async || self.heir.get(id).await).await
    }

    /// The milestone goes on where it stands, after its starter has started it again, and ends as its graph says.
    async fn recover(&self, id: &str) {
        let before = self.get(id).await;
        if let Some(record) = &before {
            assert_eq!(machine::check(record), []);
        }
        let handle = self.start(id).await;
        self.heir.spawn();
        let mut allowed = 1;
        loop {
            let status = patiently(async || handle.status().await).await;
            if status.is_terminal() {
                break;
            }
            if status == Status::InDoubt && !self.resolve(&handle).await {
                // Nobody dies any more, so it is said once, however often it is sent.
                allowed = 2;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.heir.shutdown().await;
        let record = self.check(id, allowed).await;
        for action in before.iter().flat_map(|record| &record.actions) {
            if action.state == ActionState::Completed {
                assert_eq!(record.action(&action.name).unwrap().1.output, action.output);
            }
        }
    }

    /// Does what an operator does, who can look at the effect, and says whether there was one. If the reply is lost, the state tells what came
    /// of it.
    async fn resolve(&self, handle: &Handle<bson::Document>) -> bool {
        let entries = self.entries(&handle.id().to_string());
        let effect = entries
            .iter()
            .find(|entry| entry.action == "charge" && entry.what == What::Ended);
        let answer = if let Some(entry) = effect {
            handle.resolve_applied("charge", &entry.mark).await
        } else {
            handle.resolve_not_applied("charge").await
        };
        if let Err(error) = answer {
            eprintln!("{}: {error}", self.called(&handle.id().to_string()));
        }
        effect.is_some()
    }

    async fn check(&self, id: &str, allowed: usize) -> MilestoneRecord {
        let record = self.get(id).await.unwrap();
        let entries = self.entries(id);
        let called = self.called(id);
        assert_eq!(record.state, self.scenario.ends, "{called}: {record:#?}");
        let problems = judge(&record, &entries, |_| allowed);
        assert!(
            problems.is_empty(),
            "{called}: {problems:#?}\n{entries:#?}\n{record:#?}"
        );
        let charged = entries
            .iter()
            .filter(|entry| entry.action == "charge" && entry.what == What::Ended);
        assert!(charged.count() <= 1, "{entries:#?}");
        record
    }
}
