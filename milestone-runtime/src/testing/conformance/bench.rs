//! What the checks work with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bson::{Bson, DateTime, Document, doc};
use milestone_core::{
    graph::{Plan, PlannedAction},
    limits::Limits,
    machine::NewMilestone,
    options::Mode,
    patch::Patch,
    record::{Command, DEFAULT_QUEUE, Lease, MilestoneId, MilestoneRecord, Order},
};

use super::Subject;
use crate::store::{
    ClaimRequest, Claimed, Commit, Committed, Insertion, RenewRequest, Renewed, Sent, Share, Store,
    StoreError,
};

/// How long the leases of the checks are, in milliseconds.
pub(super) const LEASE: i64 = 10_000;

/// A subject, a store on it, and a time to reckon with.
pub(super) struct Bench {
    pub(super) subject: Arc<dyn Subject>,
    pub(super) store: Arc<dyn Store>,
    /// The server's time when the check began.
    pub(super) now: DateTime,
}

impl Bench {
    pub(super) async fn new(subject: Arc<dyn Subject>) -> Self {
        let store = subject.store().await;
        let now = store.now().await.expect("the store tells the time");
        Self {
            subject,
            store,
            now,
        }
    }

    /// That many milliseconds after the beginning.
    pub(super) fn at(&self, millis: i64) -> DateTime {
        DateTime::from_millis(self.now.timestamp_millis() + millis)
    }

    /// A milestone of one action, `work`, that is due since the beginning.
    pub(super) fn record(&self, id: impl Into<MilestoneId>) -> MilestoneRecord {
        self.record_due(id, 0)
    }

    /// A milestone that is due that many milliseconds after the beginning.
    pub(super) fn record_due(&self, id: impl Into<MilestoneId>, millis: i64) -> MilestoneRecord {
        self.record_of(id, millis, &[("work", None)])
    }

    /// A milestone of actions that wait for nothing, each with its queue.
    pub(super) fn record_of(
        &self,
        id: impl Into<MilestoneId>,
        millis: i64,
        actions: &[(&str, Option<&str>)],
    ) -> MilestoneRecord {
        let actions = actions.iter().map(|(name, queue)| {
            let mut action = PlannedAction::new(*name, Mode::Idempotent);
            action.queue = queue.map(str::to_owned);
            action
        });
        let new = NewMilestone {
            id: id.into(),
            kind: "Check".to_owned(),
            parameters: doc! { "amount": 5 }.into(),
            plan: Plan::new(actions.collect()).expect("a valid graph"),
            labels: BTreeMap::new(),
            deadline: None,
        };
        MilestoneRecord::new(new, self.at(millis), &Limits::new()).expect("a valid milestone")
    }

    /// The lease of a worker, from the beginning on.
    pub(super) fn lease(&self, owner: &str, token: &str) -> Lease {
        Lease {
            owner: owner.to_owned(),
            token: token.to_owned(),
            since: self.now,
            until: self.at(LEASE),
        }
    }

    /// Stores records, all of which must be new.
    pub(super) async fn insert(&self, records: Vec<MilestoneRecord>) {
        let told = self
            .store
            .insert(records.into_iter().map(Arc::new).collect())
            .await
            .expect("an insert is answered");
        for insertion in told {
            assert!(
                matches!(insertion, Insertion::Inserted),
                "not inserted: {insertion:?}"
            );
        }
    }

    /// Whether the store refuses a record for good, and says so.
    pub(super) async fn refuses(&self, record: MilestoneRecord) -> bool {
        let told = self.store.insert(vec![Arc::new(record)]).await;
        let told = told.expect("an insert is answered");
        matches!(&told[..], [Insertion::Refused(error)] if matches!(**error, StoreError::Refused { .. }))
    }

    /// Stores a milestone of one action that the worker holds with that token, and gives it as it is stored.
    pub(super) async fn held(
        &self,
        id: impl Into<MilestoneId>,
        owner: &str,
        token: &str,
    ) -> MilestoneRecord {
        let mut record = self.record(id);
        record.born_leased(self.lease(owner, token));
        self.insert(vec![record.clone()]).await;
        record
    }

    pub(super) async fn plant(&self, document: Document) {
        self.subject.plant(document).await;
    }

    /// The document as it is stored.
    pub(super) async fn raw(&self, id: impl Into<MilestoneId>) -> Document {
        let id = id.into();
        let raw = self.subject.raw(id.clone()).await;
        raw.unwrap_or_else(|| panic!("{id} is not stored"))
    }

    pub(super) async fn get(&self, id: impl Into<MilestoneId>) -> MilestoneRecord {
        let mut found = self
            .store
            .get(vec![id.into()])
            .await
            .expect("a read is answered");
        assert_eq!(found.len(), 1, "one is found");
        found.remove(0).expect("it can be read")
    }

    /// What a worker asks for at the beginning, that has the method `work` and serves the default queue.
    pub(super) fn request(&self, owner: &str, limit: usize) -> ClaimRequest {
        ClaimRequest {
            owner: owner.to_owned(),
            token: format!("token-of-{owner}"),
            limit,
            now: self.now,
            until: self.at(LEASE),
            queues: vec![DEFAULT_QUEUE.to_owned()],
            methods: vec!["work".to_owned()],
            expired_before: None,
            except: Vec::new(),
            share: Share::all(),
            begins: None,
        }
    }

    /// Claims until nothing more comes.
    pub(super) async fn claim_all(&self, request: &ClaimRequest) -> Claimed {
        let mut all = Claimed::default();
        let mut empty = 0;
        while empty < 3 {
            let claimed = self.claim(request).await;
            empty = if claimed.records.is_empty() {
                empty + 1
            } else {
                0
            };
            assert!(
                claimed.records.len() <= request.limit,
                "no more than asked for"
            );
            for record in claimed.records {
                let twice = all.records.iter().any(|other| other.id == record.id);
                assert!(
                    !twice,
                    "it was taken a moment ago, and its lease lives: {record:?}"
                );
                all.records.push(record);
            }
            all.missed += claimed.missed;
            for unreadable in claimed.unreadable {
                if all.unreadable.iter().all(|(id, _)| *id != unreadable.0) {
                    all.unreadable.push(unreadable);
                }
            }
        }
        all
    }

    pub(super) async fn claim(&self, request: &ClaimRequest) -> Claimed {
        self.store
            .claim(request.clone())
            .await
            .expect("a claim is answered")
    }

    /// The ids of all that such a claim gives, sorted.
    pub(super) async fn claimed_ids(&self, request: &ClaimRequest) -> Vec<String> {
        let mut ids: Vec<String> = self
            .claim_all(request)
            .await
            .records
            .iter()
            .map(|record| record.id.to_string())
            .collect();
        ids.sort();
        ids
    }

    pub(super) async fn commit(&self, commit: Commit) -> Committed {
        let mut told = self.commit_all(vec![commit]).await;
        assert_eq!(told.len(), 1, "one answer to one commit");
        told.remove(0)
    }

    pub(super) async fn commit_all(&self, batch: Vec<Commit>) -> Vec<Committed> {
        self.store
            .commit(batch)
            .await
            .expect("a commit is answered")
    }

    pub(super) async fn renew(
        &self,
        owner: &str,
        holds: &[(&str, &str)],
        until: DateTime,
    ) -> Renewed {
        let holds = holds
            .iter()
            .map(|(id, token)| ((*id).into(), (*token).to_owned()))
            .collect();
        let request = RenewRequest {
            owner: owner.to_owned(),
            holds,
            until,
        };
        self.store
            .renew(request)
            .await
            .expect("a renewal is answered")
    }

    pub(super) async fn send(&self, id: &str, command: Command) -> Sent {
        self.store
            .send(id.into(), command)
            .await
            .expect("a command is answered")
    }

    /// A command, sent that many milliseconds after the beginning.
    pub(super) fn command(&self, id: &str, order: Order, millis: i64) -> Command {
        Command {
            id: id.to_owned(),
            order,
            by: "check".to_owned(),
            at: self.at(millis),
        }
    }

    /// Asserts that the document is as it was.
    pub(super) async fn assert_unchanged(&self, before: &Document) {
        let id = MilestoneId::try_from(before.get("_id").expect("an _id")).expect("an id");
        assert_same(&self.raw(id).await, before);
    }
}

/// An order that every state but the terminal ones accepts.
pub(super) fn pause() -> Order {
    Order::Pause {
        reason: "check".to_owned(),
    }
}

/// A patch that sets one field.
pub(super) fn set(path: &str, value: impl Into<Bson>) -> Patch {
    Patch::for_tests(
        vec![(path.to_owned(), value.into())],
        Vec::new(),
        None,
        false,
    )
}

/// A patch that hands a milestone back: due again for `work` from `at` on.
pub(super) fn release(at: DateTime, mail: i64) -> Patch {
    let set = vec![
        (
            "due".to_owned(),
            Bson::from(vec![
                doc! { "queue": DEFAULT_QUEUE, "at": at, "method": "work" },
            ]),
        ),
        (
            "next".to_owned(),
            doc! { "queue": DEFAULT_QUEUE, "at": at }.into(),
        ),
    ];
    Patch::for_tests(set, vec!["lease".to_owned()], Some(mail), true)
}

/// A patch that ends a milestone.
pub(super) fn end(mail: i64) -> Patch {
    let set = vec![
        ("state".to_owned(), "completed".into()),
        ("actions.0.state".to_owned(), "completed".into()),
    ];
    let unset = ["lease", "due", "next"].map(str::to_owned);
    Patch::for_tests(set, unset.to_vec(), Some(mail), true)
}

/// The commit of a patch to a milestone, as it is in memory.
pub(super) fn commit(record: &MilestoneRecord, patch: Patch) -> Commit {
    let token = record
        .lease
        .as_ref()
        .map(|lease| lease.token.clone())
        .unwrap_or_default();
    Commit {
        id: record.id.clone(),
        token,
        rev: record.rev,
        patch: Arc::new(patch),
    }
}

/// Asserts that two documents have the same fields with the same values to the byte, in whatever order the fields of the top stand.
#[track_caller]
pub(super) fn assert_same(found: &Document, expected: &Document) {
    let sorted = |document: &Document| -> BTreeMap<String, Vec<u8>> {
        let bytes = |value: &Bson| {
            doc! { "": value.clone() }
                .to_vec()
                .expect("BSON that was stored")
        };
        document
            .iter()
            .map(|(key, value)| (key.clone(), bytes(value)))
            .collect()
    };
    assert!(
        sorted(found) == sorted(expected),
        "found {found}, expected {expected}"
    );
}

/// Waits until it is so, or panics after ten seconds.
pub(super) async fn eventually<F: Future<Output = bool>>(what: &str, is: impl Fn() -> F) {
    for _ in 0..200 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still not so after ten seconds: {what}");
}
