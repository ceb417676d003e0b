//! Worker processes are killed with SIGKILL in the middle of their work, and others carry on. After each the checker walks the whole
//! collection (F10).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bson::doc;
use milestone_core::record::{ActionState, AttemptKind, MilestoneRecord, Status};
use milestone_examples::bank::Bank;
use milestone_runtime::{Runtime, dynamic::Action, store::Filter};
use milestone_tests::{
    checker::checked,
    look::{action, attempts, successes, until},
    on_stores,
    place::{Kind, Place},
};
use tempfile::TempDir;

/// Worker processes on one database, with what their actions wrote down.
struct Workers {
    uri: String,
    folder: TempDir,
    children: Vec<Child>,
}

impl Workers {
    fn new(uri: String) -> Self {
        Self {
            uri,
            folder: TempDir::new().expect("a temporary folder"),
            children: Vec::new(),
        }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    fn spawn(&self, stall: Option<&str>) -> Child {
        Command::new(env!("CARGO_BIN_EXE_crash_worker"))
            .arg(&self.uri)
            .arg(self.journal())
            .args(stall)
            .stdout(Stdio::null())
            .spawn()
            .expect("a worker process")
    }

    /// Starts one more. Attempts of the action that it stalls at never end.
    fn add(&mut self, stall: Option<&str>) {
        let child = self.spawn(stall);
        self.children.push(child);
    }

    /// Kills a worker without a word, and starts another in its place.
    fn replace(&mut self, index: usize) {
        kill(&mut self.children[index]);
        self.children[index] = self.spawn(None);
    }

    /// The attempts that began, in order: milestone, action, number.
    fn begun(&self) -> Vec<(String, String, i64)> {
        read(&self.journal())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // After a failure it may be over.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn kill(child: &mut Child) {
    assert!(
        child.try_wait().expect("a child can be asked").is_none(),
        "a worker has ended by itself"
    );
    child.kill().expect("a child can be killed");
    child.wait().expect("a killed child ends");
}

fn read(journal: &Path) -> Vec<(String, String, i64)> {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    let entry = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().expect("a line has three words");
        let (id, action, number) = (word(), word(), word());
        (id, action, number.parse().expect("a number"))
    };
    text.lines().map(entry).collect()
}

async fn client(uri: &str) -> Runtime {
    let builder = Runtime::builder(uri).client();
    let builder = builder.poll(Duration::from_millis(100));
    builder.build().await.expect("a client")
}

/// root, next below it, a grandchild below that, and done behind all of them.
fn family() -> Action {
    let next = Action::new("next")
        .idempotent()
        .next([Action::new("grandchild").idempotent()]);
    Action::new("root")
        .idempotent()
        .next([next])
        .done(Action::new("done").idempotent())
}

const FAMILY: [&str; 4] = ["root", "next", "grandchild", "done"];

/// A worker is killed in an attempt of that action. Then another one does it again, and nothing else.
async fn killed_in(place: Place, victim: &str) {
    let uri = place.uri();
    let runtime = client(&uri).await;
    let mut workers = Workers::new(uri);
    let milestone = runtime.start("Family", family(), ()).await;
    let milestone = milestone.expect("it is stored");

    workers.add(Some(victim));
    let begun = |workers: &Workers| workers.begun().iter().any(|(_, name, _)| name == victim);
    while !begun(&workers) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    workers.replace(0);
    let outputs = milestone.outcome().await.expect("it completes");
    let expected = FAMILY.map(|name| (name, if name == victim { 2_i64 } else { 1 }));
    for (name, attempt) in expected {
        assert_eq!(outputs.get_i64(name).ok(), Some(attempt), "{outputs}");
    }
    let mut journal = Vec::new();
    for (name, attempt) in expected {
        journal.extend((1..=attempt).map(|number| (name.to_owned(), number)));
    }
    let begun: Vec<_> = workers
        .begun()
        .into_iter()
        .map(|(_, name, number)| (name, number))
        .collect();
    assert_eq!(begun, journal);

    let record = milestone.record().await.expect("it is there");
    assert_eq!(successes(&record, victim), [Some(true), None]);
    let abandoned = attempts(&record, victim)[1];
    assert_eq!(abandoned.kind, Some(AttemptKind::Abandoned));
    checked(&runtime).await;
}

async fn s23_killed_in_the_root(place: Place) {
    killed_in(place, "root").await;
}

async fn s23_killed_in_next(place: Place) {
    killed_in(place, "next").await;
}

async fn s23_killed_in_a_grandchild(place: Place) {
    killed_in(place, "grandchild").await;
}

async fn s23_killed_in_done(place: Place) {
    killed_in(place, "done").await;
}

/// A plain action runs at most once, so nobody runs it again: it is in doubt.
async fn s23_killed_in_a_plain_action(place: Place) {
    let uri = place.uri();
    let runtime = client(&uri).await;
    let mut workers = Workers::new(uri);
    let graph = Action::new("root").idempotent().next(["charge"]);
    let milestone = runtime.start("Charge", graph, ()).await;
    let milestone = milestone.expect("it is stored");

    workers.add(Some("charge"));
    while workers.begun().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    workers.replace(0);
    let in_doubt = |record: &MilestoneRecord| record.state == Status::InDoubt;
    let record = until(&runtime, milestone.id(), in_doubt).await;
    assert_eq!(action(&record, "charge").state, ActionState::InDoubt);
    // Time for a worker to do what it must not.
    tokio::time::sleep(Duration::from_secs(1)).await;
    checked(&runtime).await;
    let charges = workers
        .begun()
        .into_iter()
        .filter(|(_, name, _)| name == "charge");
    assert_eq!(charges.count(), 1);
}

on_stores!(sqlite, mongodb:
    s23_killed_in_the_root,
    s23_killed_in_next,
    s23_killed_in_a_grandchild,
    s23_killed_in_done,
    s23_killed_in_a_plain_action,
);

const TRANSFERS: usize = 1_000;
const ACCOUNTS: usize = 20;
const OPENING: i64 = 1_000_000;
const WORKERS: usize = 4;

fn account(number: usize) -> String {
    format!("account-{:02}", number % ACCOUNTS)
}

/// Starts the transfers and says what the accounts must hold in the end.
async fn start(runtime: &Runtime, bank: &Bank) -> BTreeMap<String, i64> {
    let mut balances = bank.balances().await.expect("balances");
    for number in 0..ACCOUNTS {
        bank.open_account(&account(number), OPENING)
            .await
            .expect("an account");
        balances.insert(account(number), OPENING);
    }
    let mut starts = Vec::new();
    for number in 0..TRANSFERS {
        let (from, to) = (account(number), account(number * 7 + 3));
        let amount = i64::try_from(number % 90 + 1).expect("a small number");
        *balances.get_mut(&from).expect("it is open") -= amount;
        *balances.get_mut(&to).expect("it is open") += amount;
        let graph = Action::new("debit")
            .idempotent()
            .undo("refund")
            .next([Action::new("credit").idempotent()]);
        let start = runtime.start(
            "Transfer",
            graph,
            doc! { "from": from, "to": to, "amount": amount },
        );
        starts.push(start.id(format!("transfer-{number}")).into_future());
    }
    for started in futures_util::future::join_all(starts).await {
        started.expect("it is stored");
    }
    balances
}

/// How many workers are killed at the most, so that a machine on which little is done in a second comes to an end as well.
const MOST_KILLS: usize = 40;

/// Kills one worker every second until all is done, and says how many.
async fn kill_until_done(runtime: &Runtime, workers: &mut Workers) -> usize {
    let mut kills = 0;
    let began = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let done = runtime
            .count(Filter::new().state(Status::Completed))
            .await
            .expect("a count");
        println!("{kills} kills, {done} transfers are complete");
        if done == TRANSFERS as u64 {
            return kills;
        }
        assert!(
            began.elapsed() < Duration::from_mins(10),
            "after ten minutes and {kills} kills, {done} transfers are complete"
        );
        if kills < MOST_KILLS {
            workers.replace(kills % WORKERS);
            kills += 1;
        }
    }
}

async fn four_workers_and_a_killer(place: Place) {
    let uri = place.uri();
    let bank = Bank::open(&uri).await.expect("a bank");
    let runtime = client(&uri).await;
    let expected = start(&runtime, &bank).await;
    let mut workers = Workers::new(uri);
    for _ in 0..WORKERS {
        workers.add(None);
    }
    let kills = kill_until_done(&runtime, &mut workers).await;
    assert!(
        kills >= 4,
        "all was done after {kills} kills: the test proves too little"
    );
    let balances = bank.balances().await.expect("balances");
    assert_eq!(balances, expected);

    let records = checked(&runtime).await;
    assert_eq!(records.len(), TRANSFERS);
    let mut last = HashMap::new();
    let mut seen = HashSet::new();
    for (id, name, number) in workers.begun() {
        assert!(
            seen.insert((id.clone(), name.clone(), number)),
            "attempt {number} of {name} in {id} began twice"
        );
        let newest: &mut i64 = last.entry((id, name)).or_default();
        *newest = number.max(*newest);
    }
    let mut abandoned = 0;
    for record in &records {
        assert_eq!(record.state, Status::Completed, "{record:#?}");
        assert!(
            record.lease.is_none() && record.next.is_none(),
            "{record:#?}"
        );
        for name in ["debit", "credit"] {
            let all = attempts(record, name);
            let completed: Vec<i64> = all
                .iter()
                .filter(|attempt| attempt.success == Some(true))
                .map(|attempt| attempt.number)
                .collect();
            assert_eq!(completed.len(), 1, "{name} completed once: {record:#?}");
            // The attempt that completed it is the last one that ever began.
            assert_eq!(
                last.get(&(record.id.to_string(), name.to_owned())),
                completed.first(),
                "{record:#?}"
            );
            abandoned += all
                .iter()
                .filter(|attempt| attempt.kind == Some(AttemptKind::Abandoned))
                .count();
        }
    }
    assert!(
        abandoned >= kills,
        "{kills} kills hit only {abandoned} attempts"
    );
    println!("{abandoned} attempts were abandoned");
}

/// Longer than the other tests may take.
fn run(kind: Kind) {
    let tokio = tokio::runtime::Runtime::new().expect("a tokio runtime");
    tokio.block_on(async { four_workers_and_a_killer(Place::new(kind).await).await });
}

#[test]
fn a_thousand_transfers_and_a_killer_on_sqlite() {
    run(Kind::Sqlite);
}

#[test]
fn a_thousand_transfers_and_a_killer_on_mongodb() {
    run(Kind::MongoDb);
}
