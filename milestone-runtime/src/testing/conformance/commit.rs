//! Carrying out patches.

use std::sync::Arc;

use bson::{Binary, Bson, doc, spec::BinarySubtype};
use milestone_core::patch::Patch;

use super::bench::{Bench, LEASE, assert_same, commit, end, release, set};
use crate::store::{Commit, Committed, StoreError};

pub(super) async fn changes_what_the_patch_names(bench: Bench) {
    let record = bench.held("one", "w1", "t1").await;
    let before = bench.raw("one").await;
    let fields = vec![
        ("state".to_owned(), Bson::from("running")),
        ("actions.0.output".to_owned(), doc! { "a.b": 1 }.into()),
        ("actions.0.attempts".to_owned(), 1_i64.into()),
    ];
    let patch = Patch::for_tests(fields, vec!["due".to_owned()], None, false)
        .attempt_for_tests(doc! { "number": 1 }.into())
        .attempt_for_tests(doc! { "number": 2 }.into());
    let mut expected = before.clone();
    patch
        .apply_to(&mut expected, record.rev + 1)
        .expect("it fits");
    assert!(matches!(
        bench.commit(commit(&record, patch)).await,
        Committed::Done
    ));
    assert_same(&bench.raw("one").await, &expected);
    let next = Commit {
        rev: record.rev + 1,
        ..commit(
            &record,
            Patch::default().attempt_for_tests(doc! { "number": 3 }.into()),
        )
    };
    assert!(matches!(bench.commit(next).await, Committed::Done));
    let after = bench.raw("one").await;
    let report = after.get_array("report").expect("a report");
    let expected = [3, 2, 1].map(|number| Bson::from(doc! { "number": number }));
    assert_eq!(report[..], expected, "the newest comes first");
    assert_eq!(after.get_i64("rev").ok(), Some(record.rev + 2));
}

/// F18: the reply was lost, and the write is repeated.
pub(super) async fn repeated_is_done_once(bench: Bench) {
    let record = bench.held("one", "w1", "t1").await;
    let same = commit(
        &record,
        set("state", "running").attempt_for_tests(doc! { "number": 1 }.into()),
    );
    for _ in 0..3 {
        assert!(matches!(bench.commit(same.clone()).await, Committed::Done));
    }
    let after = bench.raw("one").await;
    assert_eq!(
        after.get_array("report").map(Vec::len).ok(),
        Some(1),
        "the attempt is there once"
    );
    assert_eq!(after.get_i64("rev").ok(), Some(record.rev + 1));
    // Copies of it that arrive together are done once, too.
    let next = Commit {
        rev: record.rev + 1,
        ..commit(
            &record,
            Patch::default().attempt_for_tests(doc! { "number": 2 }.into()),
        )
    };
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (store, next) = (Arc::clone(&bench.store), next.clone());
            tokio::spawn(async move { store.commit(vec![next]).await })
        })
        .collect();
    for task in tasks {
        let told = task
            .await
            .expect("the task ends")
            .expect("a commit is answered");
        assert!(matches!(told[..], [Committed::Done]), "{told:?}");
    }
    let stored = bench.raw("one").await;
    assert_eq!(stored.get_array("report").map(Vec::len).ok(), Some(2));
    // Another write in the place of one that is done changes nothing.
    for rev in [record.rev, record.rev + 1] {
        let other = Commit {
            rev,
            ..commit(
                &record,
                Patch::default().attempt_for_tests(doc! { "number": 3 }.into()),
            )
        };
        bench.commit(other).await;
        bench.assert_unchanged(&stored).await;
    }
}

pub(super) async fn a_release_repeated_is_done_once(bench: Bench) {
    for (id, patch) in [("back", release(bench.at(1), 0)), ("ended", end(0))] {
        let record = bench.held(id, "w1", "t1").await;
        let same = commit(&record, patch);
        for _ in 0..2 {
            assert!(
                matches!(bench.commit(same.clone()).await, Committed::Done),
                "{id}"
            );
        }
        assert_eq!(bench.get(id).await.rev, record.rev + 1, "{id}");
    }
    // Once another has it, nothing of it is done again.
    let mut request = bench.request("w2", 1);
    request.now = bench.at(1);
    assert_eq!(bench.claimed_ids(&request).await, ["back"]);
    let before = bench.raw("back").await;
    let mut late = bench.record("back");
    late.born_leased(bench.lease("w1", "t1"));
    assert!(matches!(
        bench.commit(commit(&late, release(bench.at(9), 0))).await,
        Committed::Lost
    ));
    bench.assert_unchanged(&before).await;
}

pub(super) async fn each_of_a_batch_for_itself(bench: Bench) {
    let good = bench.held("good", "w1", "t1").await;
    let other = bench.held("other", "w2", "t2").await;
    let rev = bench.held("rev", "w1", "t3").await;
    let mail = bench.held("mail", "w1", "t4").await;
    let last = bench.held("last", "w1", "t5").await;
    bench
        .send("mail", bench.command("c1", super::bench::pause(), 0))
        .await;
    let missing = bench.record("missing");
    let running = || set("state", "running");
    let batch = vec![
        commit(&good, running()),
        Commit {
            token: "t1".to_owned(),
            ..commit(&other, running())
        },
        Commit {
            rev: rev.rev + 1,
            ..commit(&rev, running())
        },
        Commit {
            token: "t1".to_owned(),
            ..commit(&missing, running())
        },
        commit(&mail, release(bench.now, 0)),
        commit(&last, end(0)),
    ];
    let told = bench.commit_all(batch).await;
    match &told[..] {
        [
            Committed::Done,
            Committed::Lost,
            Committed::Lost,
            Committed::Lost,
            Committed::Mail(record),
            Committed::Done,
        ] => {
            assert_eq!(**record, bench.get("mail").await);
        }
        other => panic!("{other:?}"),
    }
    let mut states = Vec::new();
    for id in ["good", "other", "rev", "mail", "last"] {
        states.push(bench.get(id).await.state.as_str());
    }
    assert_eq!(
        states,
        ["running", "pending", "pending", "pending", "completed"]
    );
    assert!(bench.commit_all(Vec::new()).await.is_empty());
}

pub(super) async fn several_of_one_milestone(bench: Bench) {
    let record = bench.held("one", "w1", "t1").await;
    let mut at = record.clone();
    for number in 0..20_i64 {
        let told = bench
            .commit(commit(&at, set("actions.0.attempts", number)))
            .await;
        assert!(matches!(told, Committed::Done), "{number}: {told:?}");
        at.rev += 1;
    }
    // Two writes ago is neither done now nor known to be: it is over.
    let before = bench.raw("one").await;
    let told = bench
        .commit(Commit {
            rev: at.rev - 2,
            ..commit(&at, set("actions.0.attempts", 77_i64))
        })
        .await;
    assert!(matches!(told, Committed::Lost), "{told:?}");
    bench.assert_unchanged(&before).await;
    assert_eq!(bench.get("one").await.actions[0].attempts, 19);
}

pub(super) async fn too_large_is_refused_alone(bench: Bench) {
    let small = bench.held("small", "w1", "t1").await;
    let large = bench.held("large", "w1", "t2").await;
    let before = bench.raw("large").await;
    let bytes = Bson::Binary(Binary {
        subtype: BinarySubtype::Generic,
        bytes: vec![7; 17 << 20],
    });
    let batch = vec![
        commit(&large, set("actions.0.output", bytes)),
        commit(&small, set("state", "running")),
    ];
    let told = bench.commit_all(batch).await;
    match &told[..] {
        [Committed::Refused(error), Committed::Done] => {
            assert!(matches!(**error, StoreError::Refused { .. }), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
    bench.assert_unchanged(&before).await;
    assert!(
        matches!(
            bench.commit(commit(&large, set("state", "running"))).await,
            Committed::Done
        ),
        "it goes on without it"
    );
}

pub(super) async fn unknown_fields_stay(bench: Bench) {
    let mut record = bench.record("one").to_document().expect("BSON");
    let extra = doc! { "a.b": [1, { "$c": null }], "": f64::INFINITY };
    record.insert("extra", extra.clone());
    record.insert(
        "report",
        vec![
            doc! { "action": "work", "number": 1_i64, "success": false, "beginDate": bench.now,
            "endDate": bench.now, "worker": "w0", "extra": extra.clone() },
        ],
    );
    if let Some(Bson::Document(action)) = record
        .get_array_mut("actions")
        .expect("actions")
        .first_mut()
    {
        action.insert("extra", extra.clone());
    }
    bench.plant(record).await;
    let claimed = bench.claim_all(&bench.request("w1", 1)).await;
    let held = claimed.records.first().expect("it is taken");
    bench
        .renew("w1", &[("one", "token-of-w1")], bench.at(2 * LEASE))
        .await;
    bench
        .send("one", bench.command("c1", super::bench::pause(), 0))
        .await;
    let patch = set("actions.0.state", "running").attempt_for_tests(doc! { "number": 2 }.into());
    assert!(matches!(
        bench.commit(commit(held, patch)).await,
        Committed::Done
    ));
    let after = bench.raw("one").await;
    let action = after.get_array("actions").expect("actions")[0]
        .as_document()
        .expect("an action");
    let attempt = after.get_array("report").expect("a report")[1]
        .as_document()
        .expect("an attempt");
    for place in [&after, action, attempt] {
        assert_eq!(place.get_document("extra").ok(), Some(&extra));
    }
    assert_eq!(action.get_str("state").ok(), Some("running"));
}

pub(super) async fn many_at_once(bench: Bench) {
    let handles = [bench.store.clone(), bench.subject.store().await];
    let mut tasks = Vec::new();
    for number in 0..32_usize {
        let id = format!("m{number}");
        let mut record = bench.held(id.as_str(), "w1", &format!("t{number}")).await;
        let store = Arc::clone(&handles[number % 2]);
        tasks.push(tokio::spawn(async move {
            for step in 1..=8_i64 {
                let patch = set("actions.0.attempts", step).attempt_for_tests(attempt(step));
                let told = store.commit(vec![commit(&record, patch)]).await;
                let told = told.expect("a commit is answered");
                assert!(
                    matches!(told[..], [Committed::Done]),
                    "{step} of {}: {told:?}",
                    record.id
                );
                record.rev += 1;
            }
            record
        }));
    }
    for task in tasks {
        let record = task.await.expect("the task ends");
        let stored = bench.get(record.id.clone()).await;
        assert_eq!(
            (stored.rev, stored.report.len()),
            (record.rev, 8),
            "{}",
            record.id
        );
        assert_eq!(stored.actions[0].attempts, 8, "{}", record.id);
    }
}

/// An attempt as a report holds it.
fn attempt(number: i64) -> Bson {
    let date = bson::DateTime::from_millis(number);
    doc! { "action": "work", "number": number, "success": true, "beginDate": date, "endDate": date, "worker": "w1" }.into()
}
