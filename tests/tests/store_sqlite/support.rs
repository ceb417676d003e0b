//! What the tests work with.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use bson::{Bson, DateTime, doc};
use milestone_core::{
    graph::{Plan, PlannedAction},
    limits::Limits,
    machine::NewMilestone,
    options::Mode,
    patch::Patch,
    record::{DEFAULT_QUEUE, Lease, MilestoneId, MilestoneRecord},
};
use milestone_runtime::store::{
    ClaimRequest, Commit, Committed, Insertion, Share, Store, StoreError, sqlite::SqliteStore,
};

/// How long leases are, in milliseconds: longer than any test, so that none ends by itself.
pub(crate) const LEASE: i64 = 600_000;

pub(crate) fn store(path: &Path) -> SqliteStore {
    SqliteStore::open_file(path, "_milestones_").expect("a store")
}

pub(crate) async fn opened(path: &Path) -> SqliteStore {
    let store = store(path);
    store.open().await.expect("it opens");
    store
}

/// The message of an error, which must name the file.
pub(crate) fn message(error: &StoreError, path: &Path) -> String {
    let message = error.to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
    message
}

pub(crate) fn later(date: DateTime, millis: i64) -> DateTime {
    DateTime::from_millis(date.timestamp_millis() + millis)
}

pub(crate) fn record(id: impl Into<MilestoneId>, now: DateTime) -> MilestoneRecord {
    let new = NewMilestone {
        id: id.into(),
        kind: "Test".to_owned(),
        parameters: Bson::Null,
        plan: Plan::new(vec![PlannedAction::new("work", Mode::Idempotent)]).expect("a graph"),
        labels: BTreeMap::new(),
        deadline: None,
    };
    MilestoneRecord::new(new, now, &Limits::new()).expect("a milestone")
}

pub(crate) fn held(id: impl Into<MilestoneId>, now: DateTime, owner: &str) -> MilestoneRecord {
    let mut record = record(id, now);
    let (owner, token) = (owner.to_owned(), format!("token-of-{owner}"));
    record.born_leased(Lease {
        owner,
        token,
        since: now,
        until: later(now, LEASE),
    });
    record
}

pub(crate) async fn insert(store: &SqliteStore, record: MilestoneRecord) {
    let told = store
        .insert(vec![Arc::new(record)])
        .await
        .expect("an insert is answered");
    assert!(matches!(told[..], [Insertion::Inserted]), "{told:?}");
}

/// What a worker asks for that takes nothing from the living.
pub(crate) fn request(owner: &str, now: DateTime, limit: usize) -> ClaimRequest {
    ClaimRequest {
        owner: owner.to_owned(),
        token: format!("token-of-{owner}"),
        limit,
        now,
        until: later(now, LEASE),
        queues: vec![DEFAULT_QUEUE.to_owned()],
        methods: vec!["work".to_owned()],
        expired_before: None,
        except: Vec::new(),
        share: Share::all(),
        begins: None,
    }
}

pub(crate) async fn claim(store: &SqliteStore, owner: &str, limit: usize) -> Vec<MilestoneRecord> {
    let now = store.now().await.expect("the time");
    store
        .claim(request(owner, now, limit))
        .await
        .expect("a claim is answered")
        .records
}

pub(crate) async fn claimed_ids(store: &SqliteStore, owner: &str, limit: usize) -> Vec<String> {
    claim(store, owner, limit)
        .await
        .iter()
        .map(|record| record.id.to_string())
        .collect()
}

/// Ends a milestone that is held.
pub(crate) fn end(record: &MilestoneRecord) -> Commit {
    let set = vec![
        ("state".to_owned(), Bson::from("completed")),
        ("parameters".to_owned(), doc! { "ended": true }.into()),
    ];
    let unset = ["lease", "due", "next"].map(str::to_owned);
    let token = record
        .lease
        .as_ref()
        .map(|lease| lease.token.clone())
        .unwrap_or_default();
    let patch = Arc::new(Patch::for_tests(
        set,
        unset.to_vec(),
        Some(record.mail),
        true,
    ));
    Commit {
        id: record.id.clone(),
        token,
        rev: record.rev,
        patch,
    }
}

pub(crate) async fn commit(store: &SqliteStore, commit: Commit) -> Committed {
    store
        .commit(vec![commit])
        .await
        .expect("a commit is answered")
        .remove(0)
}

/// Set for a process that a test starts to play a part of it: the file, and which part.
const CHILD: &str = "MILESTONE_TEST_CHILD";

/// Starts a test of this binary once more, in a process of its own, to play another part.
pub(crate) fn child(test: &str, path: &Path, part: &str) -> Child {
    let binary = std::env::current_exe().expect("the test binary");
    Command::new(binary)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .env("MILESTONE_TEST_PART", part)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// The file and the part, in a process that [`child`] has started.
pub(crate) fn as_child() -> Option<(PathBuf, String)> {
    let path = std::env::var_os(CHILD)?;
    Some((
        path.into(),
        std::env::var("MILESTONE_TEST_PART").unwrap_or_default(),
    ))
}
