//! New milestones.

use std::sync::Arc;

use bson::{Binary, Bson, doc, oid::ObjectId, spec::BinarySubtype};
use milestone_core::record::{MilestoneId, MilestoneRecord};

use super::bench::{Bench, assert_same};
use crate::store::{Insertion, StoreError};

pub(super) async fn is_atomic_for_one_id(bench: Bench) {
    let stores = [bench.store.clone(), bench.subject.store().await];
    for id in [
        MilestoneId::ObjectId(ObjectId::new()),
        MilestoneId::from("the-key"),
    ] {
        let tasks: Vec<_> = (0..20_usize)
            .map(|number| {
                let mut record = bench.record(id.clone());
                record.parameters =
                    doc! { "number": i64::try_from(number).unwrap_or_default() }.into();
                let store = Arc::clone(&stores[number % 2]);
                tokio::spawn(async move {
                    let told = store
                        .insert(vec![Arc::new(record.clone())])
                        .await
                        .expect("an insert is answered");
                    (record, told.into_iter().next().expect("one answer"))
                })
            })
            .collect();
        let mut winners = Vec::new();
        let mut others = Vec::new();
        for task in tasks {
            match task.await.expect("the task ends") {
                (record, Insertion::Inserted) => winners.push(record),
                (_, Insertion::Exists(record)) => others.push(record.expect("it can be read")),
                (_, refused) => panic!("{refused:?}"),
            }
        }
        assert_eq!(
            (winners.len(), others.len()),
            (1, 19),
            "one of 20 is stored"
        );
        assert!(
            others.iter().all(|other| *other == winners[0]),
            "the others are told what is stored"
        );
        assert_eq!(bench.get(id).await, winners[0]);
    }
}

pub(super) async fn a_duplicate_hinders_nobody(bench: Bench) {
    let first = changed(bench.record("b"), 1);
    bench.insert(vec![first.clone()]).await;
    let id = ObjectId::new();
    let batch = [
        changed(bench.record("a"), 2),
        changed(bench.record("b"), 3),
        changed(bench.record(id), 4),
        changed(bench.record("a"), 5),
        changed(bench.record("c"), 6),
        changed(bench.record(id), 7),
    ];
    let told = bench
        .store
        .insert(batch.iter().cloned().map(Arc::new).collect())
        .await
        .expect("an insert is answered");
    let kinds: Vec<Option<MilestoneRecord>> = told
        .into_iter()
        .map(|insertion| match insertion {
            Insertion::Inserted => None,
            Insertion::Exists(record) => Some(record.expect("it can be read")),
            Insertion::Refused(error) => panic!("{error}"),
        })
        .collect();
    let expected = [
        None,
        Some(first),
        None,
        Some(batch[0].clone()),
        None,
        Some(batch[2].clone()),
    ];
    assert_eq!(kinds, expected, "each is told its own");
    assert_eq!(bench.get("c").await, batch[4]);
}

pub(super) async fn keeps_what_it_is_given(bench: Bench) {
    let mut record = bench.record_of("kept", 5, &[("work", None), ("other", Some("slow"))]);
    record.labels.insert("team".to_owned(), "blue".to_owned());
    record.priority = 3;
    record.trace = Some("00-1-2-01".to_owned());
    record.born_leased(bench.lease("w1", "t1"));
    bench.insert(vec![record.clone()]).await;
    assert_eq!(bench.get("kept").await, record);
    assert_same(
        &bench.raw("kept").await,
        &record.to_document().expect("BSON"),
    );
    assert!(
        bench
            .store
            .insert(Vec::new())
            .await
            .expect("an empty insert is answered")
            .is_empty()
    );
}

pub(super) async fn a_document_too_large_is_refused_alone(bench: Bench) {
    let mut large = bench.record("large");
    large.parameters = Bson::Binary(Binary {
        subtype: BinarySubtype::Generic,
        bytes: vec![7; 17 << 20],
    });
    refused_alone(&bench, large).await;
}

pub(super) async fn a_document_too_deep_is_refused_alone(bench: Bench) {
    let mut deep = bench.record("deep");
    deep.parameters = nested(250);
    refused_alone(&bench, deep).await;
}

pub(super) async fn a_deep_one_is_kept(bench: Bench) {
    let mut deep = bench.record("deep");
    deep.parameters = nested(milestone_core::limits::MAX_DEPTH);
    bench.insert(vec![deep.clone()]).await;
    assert_eq!(bench.get("deep").await, deep);
}

async fn refused_alone(bench: &Bench, bad: MilestoneRecord) {
    let id = bad.id.clone();
    let batch = vec![bench.record("before"), bad, bench.record("behind")];
    let told = bench
        .store
        .insert(batch.into_iter().map(Arc::new).collect())
        .await
        .expect("an insert is answered");
    match &told[..] {
        [
            Insertion::Inserted,
            Insertion::Refused(error),
            Insertion::Inserted,
        ] => {
            assert!(
                matches!(**error, StoreError::Refused { .. }),
                "it says that it is refused: {error:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(
        bench.subject.raw(id).await.is_none(),
        "what is refused is not stored"
    );
    bench.get("before").await;
    bench.get("behind").await;
}

fn nested(depth: usize) -> Bson {
    (0..depth).fold(Bson::Int32(1), |inner, level| {
        if level % 2 == 0 {
            Bson::Array(vec![inner])
        } else {
            doc! { "d": inner }.into()
        }
    })
}

fn changed(mut record: MilestoneRecord, number: i32) -> MilestoneRecord {
    record.parameters = number.into();
    record
}
