//! Taking milestones.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::oid::ObjectId;
use milestone_core::{
    lease,
    limits::Limits,
    machine::Begins,
    record::{ActionState, Due, MilestoneId, MilestoneRecord, Next, Running, Status},
};

use super::bench::{Bench, LEASE, assert_same, commit, end};
use crate::store::{ClaimRequest, Committed};

pub(super) async fn takes_each_milestone_once(bench: Bench) {
    const ALL: usize = 200;
    let records = (0..ALL).map(|number| {
        let id = if number % 2 == 0 {
            MilestoneId::from(format!("m{number}"))
        } else {
            ObjectId::new().into()
        };
        bench.record_due(id, -i64::try_from(number).unwrap_or_default())
    });
    bench.insert(records.collect()).await;
    let stores = [bench.store.clone(), bench.subject.store().await];
    let taken = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..16_usize)
        .map(|worker| {
            let (store, taken) = (Arc::clone(&stores[worker % 2]), Arc::clone(&taken));
            let request = bench.request(&format!("w{worker}"), 5);
            tokio::spawn(async move {
                let mut mine = Vec::new();
                for _ in 0..2_000 {
                    if taken.load(Ordering::SeqCst) >= ALL {
                        break;
                    }
                    let claimed = store
                        .claim(request.clone())
                        .await
                        .expect("a claim is answered");
                    taken.fetch_add(claimed.records.len(), Ordering::SeqCst);
                    if claimed.records.is_empty() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    mine.extend(claimed.records);
                }
                mine
            })
        })
        .collect();
    let mut holders: HashMap<MilestoneId, MilestoneRecord> = HashMap::new();
    for task in tasks {
        for record in task.await.expect("the task ends") {
            let twice = holders.insert(record.id.clone(), record);
            assert!(twice.is_none(), "taken by two: {twice:?}");
        }
    }
    assert_eq!(holders.len(), ALL, "all are taken");
    for (id, record) in holders {
        assert_eq!(record.epoch, 1);
        assert_eq!(
            bench.get(id).await,
            record,
            "what is stored is what the one was given"
        );
    }
}

pub(super) async fn writes_what_it_gives(bench: Bench) {
    let before = bench.record("one");
    bench.insert(vec![before.clone()]).await;
    let claimed = bench.claim_all(&bench.request("w1", 1)).await;
    assert_eq!(claimed.records.len(), 1);
    let mut expected = before;
    let patch = lease::claim(&mut expected, bench.lease("w1", "token-of-w1"));
    expected.rev += 1;
    assert_eq!(patch.value("epoch"), Some(&1_i64.into()));
    assert_eq!(claimed.records[0], expected);
    assert_same(
        &bench.raw("one").await,
        &expected.to_document().expect("BSON"),
    );
}

pub(super) async fn begins_what_may_run_twice(bench: Bench) {
    let before = bench.record("one");
    bench.insert(vec![before.clone()]).await;
    let begins = Begins {
        methods: ["work".to_owned()].into(),
        now: bench.at(0),
        limits: Limits::new(),
    };
    let request = ClaimRequest {
        begins: Some(begins),
        ..bench.request("w1", 1)
    };
    let claimed = bench.claim_all(&request).await;
    let [record] = &claimed.records[..] else {
        panic!("one is taken: {claimed:?}");
    };
    let running = record.actions[0].running.as_ref();
    let running = running.expect("it runs");
    assert_eq!(
        (running.number, running.epoch, &*running.worker),
        (1, 1, "w1")
    );
    assert_eq!(
        (record.state, record.rev),
        (Status::Running, before.rev + 1)
    );
    assert_same(
        &bench.raw("one").await,
        &record.to_document().expect("BSON"),
    );
}

pub(super) async fn counts_a_loss(bench: Bench) {
    let mut record = bench.record("lost");
    record.actions[0].state = ActionState::Running;
    record.actions[0].attempts = 1;
    record.actions[0].running = Some(Running {
        number: 1,
        begin_date: bench.now,
        worker: "w1".to_owned(),
        epoch: 1,
    });
    record.state = Status::Running;
    record.born_leased(bench.lease("w1", "t1"));
    bench.insert(vec![record]).await;
    let mut request = bench.request("w2", 1);
    request.now = bench.at(LEASE + 2);
    request.until = bench.at(2 * LEASE);
    request.expired_before = Some(bench.at(LEASE + 1));
    let claimed = bench.claim_all(&request).await;
    assert_eq!(claimed.records.len(), 1);
    assert_eq!(
        (claimed.records[0].losses, claimed.records[0].epoch),
        (1, 2)
    );
    assert_eq!(bench.get("lost").await, claimed.records[0]);
}

pub(super) async fn leaves_live_leases_alone(bench: Bench) {
    bench.held("held", "w1", "t1").await;
    let mut request = bench.request("w2", 5);
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    // Due by the clock, but the lease may only be taken when told so.
    request.now = bench.at(LEASE + 1);
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    request.expired_before = Some(bench.at(LEASE));
    assert_eq!(
        bench.claimed_ids(&request).await,
        [""; 0],
        "a lease that ends at that time has not ended before it"
    );
}

pub(super) async fn takes_expired_leases_when_told(bench: Bench) {
    bench.held("held", "w1", "t1").await;
    bench.held("renewed", "w1", "t2").await;
    bench
        .renew("w1", &[("renewed", "t2")], bench.at(LEASE + 50))
        .await;
    let mut request = bench.request("w2", 5);
    request.now = bench.at(LEASE + 10);
    request.until = bench.at(2 * LEASE);
    request.expired_before = Some(bench.at(LEASE + 1));
    let claimed = bench.claim_all(&request).await;
    assert_eq!(claimed.records.len(), 1);
    let record = &claimed.records[0];
    assert_eq!((record.id.to_string().as_str(), record.epoch), ("held", 2));
    assert_eq!(
        record.lease.as_ref().map(|lease| lease.owner.as_str()),
        Some("w2")
    );
}

pub(super) async fn keeps_to_the_limit(bench: Bench) {
    bench
        .insert(
            (0..10)
                .map(|number| bench.record(format!("m{number}")))
                .collect(),
        )
        .await;
    assert!(
        bench
            .claim(&bench.request("w1", 0))
            .await
            .records
            .is_empty()
    );
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let claimed = bench.claim(&bench.request("w1", 4)).await;
        assert!(claimed.records.len() <= 4);
        sizes.push(claimed.records.len());
    }
    assert_eq!(
        sizes.iter().sum::<usize>(),
        10,
        "all come, in pages of at most 4: {sizes:?}"
    );
}

pub(super) async fn leaves_the_excepted_alone(bench: Bench) {
    let id = ObjectId::new();
    bench
        .insert(vec![bench.record("a"), bench.record(id), bench.record("b")])
        .await;
    let mut request = bench.request("w1", 5);
    request.except = vec!["a".into(), id.into(), "unknown".into()];
    assert_eq!(bench.claimed_ids(&request).await, ["b"]);
    request.except.clear();
    let mut expected = vec!["a".to_owned(), id.to_string()];
    expected.sort();
    assert_eq!(bench.claimed_ids(&request).await, expected);
}

pub(super) async fn leaves_alone_what_is_not_due(bench: Bench) {
    let ended = bench.held("ended", "w1", "t1").await;
    assert!(matches!(
        bench.commit(commit(&ended, end(0))).await,
        Committed::Done
    ));
    let mut on_hold = bench.record("on-hold");
    (on_hold.due, on_hold.next) = (Vec::new(), None);
    let mut half = bench.record("half");
    // The one that is due first is another's, and ours is not due yet.
    half.due.insert(
        0,
        Due {
            queue: "default".to_owned(),
            at: bench.now,
            method: "other".to_owned(),
        },
    );
    half.due[1].at = bench.at(1);
    half.next = Some(Next {
        queue: "default".to_owned(),
        at: bench.now,
    });
    bench.insert(vec![on_hold, half]).await;
    let mut request = bench.request("w2", 5);
    request.expired_before = Some(bench.at(10 * LEASE));
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    request.now = bench.at(1);
    assert_eq!(bench.claimed_ids(&request).await, ["half"]);
}
