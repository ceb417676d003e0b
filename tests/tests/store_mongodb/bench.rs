//! What the tests of this store work with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use milestone_core::{
    graph::{Plan, PlannedAction},
    limits::Limits,
    machine::NewMilestone,
    options::Mode,
    patch::Patch,
    record::{Lease, MilestoneId, MilestoneRecord},
};
use milestone_runtime::store::{
    ClaimRequest, Commit, Committed, Insertion, Share, Store as _,
    mongodb::{DEFAULT_COLLECTION, MongoStore},
};
use milestone_tests::{proxy::Proxy, server::Scratch};
use mongodb::{Collection, options::ClientOptions};

/// A store that has been opened.
pub(crate) async fn open(options: ClientOptions, database: &str) -> MongoStore {
    let store = MongoStore::new(options, database, DEFAULT_COLLECTION);
    store.open().await.expect("the store opens");
    store
}

pub(crate) fn milestones(scratch: &Scratch) -> Collection<RawDocumentBuf> {
    scratch.database().collection(DEFAULT_COLLECTION)
}

/// A document as it is stored. Not by serde, which would take some values for extended JSON.
pub(crate) async fn raw(scratch: &Scratch, id: Bson) -> Option<Document> {
    let found = milestones(scratch)
        .find_one(doc! { "_id": id })
        .await
        .expect("it is read");
    found.map(|raw| Document::try_from(&*raw).expect("BSON"))
}

/// A store in a database of its own.
pub(crate) struct Bench {
    pub(crate) store: MongoStore,
    pub(crate) scratch: Scratch,
    pub(crate) now: DateTime,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let scratch = Scratch::new().await;
        let mut options = scratch.options().await;
        // A server that was not the primary is asked again after that time.
        options.heartbeat_freq = Some(Duration::from_millis(500));
        Self::with(scratch, options).await
    }

    /// With a network that loses replies.
    pub(crate) async fn behind_proxy() -> (Self, Proxy) {
        let scratch = Scratch::new().await;
        let mut options = scratch.options().await;
        let proxy = Proxy::before(&mut options).await;
        (Self::with(scratch, options).await, proxy)
    }

    async fn with(scratch: Scratch, options: ClientOptions) -> Self {
        let store = open(options, scratch.name()).await;
        let now = store.now().await.expect("the server tells the time");
        Self {
            store,
            scratch,
            now,
        }
    }

    pub(crate) fn at(&self, millis: i64) -> DateTime {
        DateTime::from_millis(self.now.timestamp_millis() + millis)
    }

    /// A milestone of two actions that is due.
    pub(crate) fn record(&self, id: &str) -> MilestoneRecord {
        let actions = vec![
            PlannedAction::new("debit", Mode::Idempotent),
            PlannedAction::new("credit", Mode::Idempotent).after([0]),
        ];
        let new = NewMilestone {
            id: id.into(),
            kind: "Transfer".to_owned(),
            parameters: doc! { "amount": 5 }.into(),
            plan: Plan::new(actions).expect("a graph"),
            labels: BTreeMap::new(),
            deadline: None,
        };
        MilestoneRecord::new(new, self.now, &Limits::new()).expect("a milestone")
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease {
            owner: "w1".to_owned(),
            token: "t1".to_owned(),
            since: self.now,
            until: self.at(10_000),
        }
    }

    /// A milestone that the worker `w1` holds with the token `t1`.
    pub(crate) async fn held(&self, id: &str) -> MilestoneRecord {
        let mut record = self.record(id);
        record.born_leased(self.lease());
        self.insert(record.clone()).await;
        record
    }

    pub(crate) async fn insert(&self, record: MilestoneRecord) {
        let told = self
            .store
            .insert(vec![Arc::new(record)])
            .await
            .expect("an answer");
        assert!(matches!(told[..], [Insertion::Inserted]), "{told:?}");
    }

    pub(crate) fn request(&self) -> ClaimRequest {
        ClaimRequest {
            owner: "w1".to_owned(),
            token: "t1".to_owned(),
            limit: 10,
            now: self.now,
            until: self.at(10_000),
            queues: vec!["default".to_owned()],
            methods: vec!["debit".to_owned()],
            expired_before: None,
            except: Vec::new(),
            share: Share::all(),
            begins: None,
        }
    }

    pub(crate) async fn commit(&self, commit: &Commit) -> Committed {
        let mut told = self
            .store
            .commit(vec![commit.clone()])
            .await
            .expect("an answer");
        assert_eq!(told.len(), 1);
        told.remove(0)
    }

    pub(crate) async fn document(&self, id: impl Into<MilestoneId>) -> Document {
        raw(&self.scratch, Bson::from(id.into()))
            .await
            .expect("it is stored")
    }
}

/// The commit of a patch that sets a field, under the token `t1`.
pub(crate) fn sets(record: &MilestoneRecord, path: &str, value: impl Into<Bson>) -> Commit {
    commit_of(
        record,
        Patch::for_tests(vec![(path.to_owned(), value.into())], vec![], None, false),
    )
}

/// The commit of a patch that ends a milestone, under the token `t1`.
pub(crate) fn ends(record: &MilestoneRecord) -> Commit {
    let set = vec![("state".to_owned(), "completed".into())];
    let unset = ["lease", "due", "next"].map(str::to_owned).to_vec();
    commit_of(
        record,
        Patch::for_tests(set, unset, Some(record.mail), true),
    )
}

pub(crate) fn commit_of(record: &MilestoneRecord, patch: Patch) -> Commit {
    Commit {
        id: record.id.clone(),
        token: "t1".to_owned(),
        rev: record.rev,
        patch: Arc::new(patch),
    }
}
