//! Documents that a newer version wrote, or that somebody broke by hand.

use bson::{Bson, Document, doc};

use super::bench::{Bench, LEASE};
use crate::store::{Filter, Insertion, Page};

/// Documents that cannot be read although they seem due, each with its name.
fn broken(bench: &Bench) -> Vec<Document> {
    let document = |id: &str| bench.record(id).to_document().expect("BSON");
    let mut newer = document("newer");
    newer.insert("schema", 2);
    newer.insert("actions", "moved elsewhere");
    let mut schema = document("no-schema");
    schema.remove("schema");
    let mut state = document("state");
    state.insert("state", "thinking");
    let mut actions = document("actions");
    actions.insert("actions", doc! { "0": "work" });
    let mut empty = document("empty");
    empty.insert("actions", Vec::<Bson>::new());
    let mut kind = document("kind");
    kind.insert("type", 7);
    let mut epoch = document("epoch");
    epoch.insert("epoch", "high");
    let mut cycle = document("cycle");
    if let Some(Bson::Document(action)) =
        cycle.get_array_mut("actions").expect("actions").first_mut()
    {
        action.insert("after", vec![0]);
    }
    vec![newer, schema, state, actions, empty, kind, epoch, cycle]
}

pub(super) async fn are_left_alone_and_named(bench: Bench) {
    let broken = broken(&bench);
    for document in &broken {
        bench.plant(document.clone()).await;
    }
    bench
        .insert(vec![
            bench.record("good-1"),
            bench.record_due("good-2", -1_000),
        ])
        .await;
    let claimed = bench.claim_all(&bench.request("w1", 20)).await;
    let mut ids: Vec<String> = claimed
        .records
        .iter()
        .map(|record| record.id.to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["good-1", "good-2"]);
    for document in &broken {
        let id = document.get_str("_id").expect("an id");
        let told = claimed
            .unreadable
            .iter()
            .find(|(named, _)| *named == id.into());
        let (_, reason) =
            told.unwrap_or_else(|| panic!("{id} is not named: {:?}", claimed.unreadable));
        assert_eq!(reason.id, id);
        assert!(!reason.reason.is_empty(), "{id} is named with a reason");
        bench.assert_unchanged(document).await;
    }
}

pub(super) async fn do_not_block_others(bench: Bench) {
    for number in 0..40 {
        let mut document = bench
            .record_due(format!("x{number}"), -5_000 - number)
            .to_document()
            .expect("BSON");
        document.insert("schema", 99);
        bench.plant(document).await;
    }
    bench
        .insert(
            (0..3)
                .map(|number| bench.record(format!("good-{number}")))
                .collect(),
        )
        .await;
    assert_eq!(
        bench.claimed_ids(&bench.request("w1", 2)).await,
        ["good-0", "good-1", "good-2"]
    );
}

pub(super) async fn are_told_on_reading(bench: Bench) {
    let broken = broken(&bench);
    for document in &broken {
        bench.plant(document.clone()).await;
    }
    bench.insert(vec![bench.record("good")]).await;
    let listed = bench
        .store
        .list(Filter::new(), Page::default())
        .await
        .expect("a list is answered");
    assert_eq!(
        (listed.records.len(), listed.unreadable.len()),
        (1, broken.len())
    );
    let count = bench
        .store
        .count(Filter::new())
        .await
        .expect("a count is answered");
    assert_eq!(count, 1 + broken.len() as u64);
    let told = bench
        .store
        .insert(vec![bench.record("newer").into()])
        .await
        .expect("an insert is answered");
    assert!(matches!(told[..], [Insertion::Exists(Err(_))]), "{told:?}");
    let found = bench
        .store
        .get(vec!["newer".into(), "good".into()])
        .await
        .expect("a read is answered");
    match &found[..] {
        [Err(unreadable), Ok(good)] => {
            assert_eq!(
                (unreadable.id.as_str(), good.id.to_string().as_str()),
                ("newer", "good")
            );
        }
        other => panic!("{other:?}"),
    }
    for document in &broken {
        bench.assert_unchanged(document).await;
    }
}

/// Somebody breaks a document while a worker holds it: what the worker writes does not mend it, and what it does not name stays.
pub(super) async fn of_a_claimed_one_lose_nothing(bench: Bench) {
    bench.held("one", "w1", "t1").await;
    let mut document = bench.raw("one").await;
    document.insert("schema", 99);
    document.insert("news", doc! { "of": "a newer version" });
    bench.plant(document.clone()).await;
    assert!(
        bench
            .renew("w1", &[("one", "t1")], bench.at(LEASE))
            .await
            .lost
            .is_empty()
    );
    bench.assert_unchanged(&document).await;
    let mut request = bench.request("w2", 1);
    request.now = bench.at(LEASE + 2);
    request.expired_before = Some(bench.at(LEASE + 1));
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    bench.assert_unchanged(&document).await;
}
