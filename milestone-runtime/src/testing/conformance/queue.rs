//! What is found due, by whom, and in which order.

use bson::DateTime;
use milestone_core::record::Due;

use super::bench::Bench;

/// A store may spread the claims of workers over so many pages, so that they do not fight over the first one.
const SPREAD: usize = 8;

pub(super) async fn earliest_first_across_pages(bench: Bench) {
    const ALL: usize = 60;
    const PAGE: usize = 3;
    // In an order that has nothing to do with the times.
    let numbers = (0..ALL).map(|number| number * 37 % ALL);
    let records = numbers.map(|number| {
        let millis = i64::try_from(number).unwrap_or_default() * 10 - 10_000;
        bench.record_due(format!("m{number:02}"), millis)
    });
    bench.insert(records.collect()).await;
    let mut waiting: Vec<String> = (0..ALL).map(|number| format!("m{number:02}")).collect();
    let mut empty = 0;
    while !waiting.is_empty() {
        let claimed = bench.claim(&bench.request("w1", PAGE)).await;
        empty = if claimed.records.is_empty() {
            empty + 1
        } else {
            0
        };
        assert!(empty < 5, "these never come: {waiting:?}");
        let ids: Vec<String> = claimed
            .records
            .iter()
            .map(|record| record.id.to_string())
            .collect();
        assert!(ids.is_sorted(), "a page is in the order of time: {ids:?}");
        for id in &ids {
            let place = waiting.iter().position(|other| other == id);
            assert!(
                place.is_some_and(|place| place < PAGE * SPREAD),
                "{id} comes before {:?}",
                &waiting[..PAGE * SPREAD]
            );
        }
        waiting.retain(|id| !ids.contains(id));
    }
}

pub(super) async fn not_before_its_time(bench: Bench) {
    bench
        .insert(vec![
            bench.record_due("later", 5_000),
            bench.record_due("soon", 1),
            bench.record_due("now", 0),
        ])
        .await;
    let mut request = bench.request("w1", 5);
    assert_eq!(bench.claimed_ids(&request).await, ["now"]);
    request.now = bench.at(4_999);
    assert_eq!(bench.claimed_ids(&request).await, ["soon"]);
    request.now = bench.at(5_000);
    assert_eq!(bench.claimed_ids(&request).await, ["later"]);
    request.now = DateTime::MAX;
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
}

pub(super) async fn only_methods_of_the_worker(bench: Bench) {
    let mut anybody = bench.record("anybody");
    anybody.due = vec![Due {
        queue: "default".to_owned(),
        at: bench.now,
        method: String::new(),
    }];
    bench
        .insert(vec![
            bench.record_of("both", 0, &[("work", None), ("other", None)]),
            bench.record_of("other", 0, &[("other", None)]),
            bench.record_of("third", 0, &[("third", None), ("fourth", None)]),
            anybody,
        ])
        .await;
    let mut request = bench.request("w1", 10);
    request.methods = vec!["unknown".to_owned()];
    assert_eq!(bench.claimed_ids(&request).await, ["anybody"]);
    request.methods = vec!["work".to_owned()];
    assert_eq!(bench.claimed_ids(&request).await, ["both"]);
    request.methods.clear();
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    request.methods = vec!["fourth".to_owned(), "other".to_owned()];
    assert_eq!(bench.claimed_ids(&request).await, ["other", "third"]);
}

pub(super) async fn only_queues_of_the_worker(bench: Bench) {
    let mut mixed = bench.record_of("mixed", 0, &[("work", Some("slow")), ("other", None)]);
    mixed.due = vec![
        Due {
            queue: "default".to_owned(),
            at: bench.now,
            method: "other".to_owned(),
        },
        Due {
            queue: "slow".to_owned(),
            at: bench.now,
            method: "work".to_owned(),
        },
    ];
    if let Some(next) = &mut mixed.next {
        "default".clone_into(&mut next.queue);
    }
    bench
        .insert(vec![
            bench.record("fast"),
            bench.record_of("slow", 0, &[("work", Some("slow"))]),
            mixed,
        ])
        .await;
    let mut request = bench.request("w1", 10);
    request.queues = vec!["unknown".to_owned()];
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    request.queues = vec!["default".to_owned()];
    // `mixed` has `work` in a queue that this worker does not serve: it would take it and have nothing to do.
    assert_eq!(bench.claimed_ids(&request).await, ["fast"]);
    request.queues = vec!["default".to_owned(), "slow".to_owned()];
    assert_eq!(bench.claimed_ids(&request).await, ["mixed", "slow"]);
}

pub(super) async fn others_in_front_do_not_block(bench: Bench) {
    let mut records: Vec<_> = (0..80)
        .map(|number| bench.record_of(format!("x{number}"), -1_000 - number, &[("other", None)]))
        .collect();
    records.push(bench.record("ours"));
    bench.insert(records).await;
    assert_eq!(bench.claimed_ids(&bench.request("w1", 1)).await, ["ours"]);
}

pub(super) async fn the_higher_priority_first(bench: Bench) {
    let mut records = Vec::new();
    for (id, priority) in [("low", -5), ("none", 0), ("high", 7)] {
        let mut record = bench.record(id);
        record.priority = priority;
        records.push(record);
    }
    bench.insert(records).await;
    let mut order = Vec::new();
    for _ in 0..10 {
        let claimed = bench.claim(&bench.request("w1", 1)).await;
        order.extend(claimed.records.iter().map(|record| record.id.to_string()));
    }
    assert_eq!(order, ["high", "none", "low"]);
}
