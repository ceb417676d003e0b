//! Reading many.

use bson::oid::ObjectId;
use milestone_core::record::{MilestoneId, Status};

use super::bench::Bench;
use crate::store::{Filter, Page};

/// Lists all, page by page.
async fn pages(bench: &Bench, filter: &Filter, limit: usize) -> Vec<MilestoneId> {
    let mut ids = Vec::new();
    let mut page = Page { after: None, limit };
    loop {
        let listed = bench
            .store
            .list(filter.clone(), page.clone())
            .await
            .expect("a list is answered");
        assert!(listed.records.len() <= limit, "no more than asked for");
        ids.extend(listed.records.into_iter().map(|record| record.id));
        assert!(ids.len() <= 200, "pages without end");
        match listed.next {
            Some(next) => page.after = Some(next),
            None => return ids,
        }
    }
}

pub(super) async fn pages_over_all_ids(bench: Bench) {
    let mut expected: Vec<MilestoneId> = (0..20).map(|_| ObjectId::new().into()).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    // ObjectIds are higher than strings, as MongoDB has it; strings go by their bytes.
    let strings = [
        "z",
        "b",
        "a\u{1F600}",
        "aa",
        "a",
        "Z",
        "0",
        "-",
        "65f0c0ffee65f0c0ffee65f0",
    ];
    let mut strings: Vec<MilestoneId> = strings.into_iter().map(MilestoneId::from).collect();
    strings.sort_unstable_by(|a, b| b.cmp(a));
    expected.extend(strings);
    let mut records: Vec<_> = expected.iter().map(|id| bench.record(id.clone())).collect();
    records.rotate_left(7);
    bench.insert(records).await;
    for limit in [1, 7, 28, 29, 30, 100] {
        assert_eq!(
            pages(&bench, &Filter::new(), limit).await,
            expected,
            "in pages of {limit}"
        );
    }
    // A page goes on behind an id that is no more.
    assert!(
        bench
            .store
            .remove(expected[9].clone())
            .await
            .expect("a removal is answered")
    );
    let page = Page {
        after: Some(expected[9].clone()),
        limit: 2,
    };
    let listed = bench
        .store
        .list(Filter::new(), page)
        .await
        .expect("a list is answered");
    let ids: Vec<MilestoneId> = listed.records.into_iter().map(|record| record.id).collect();
    assert_eq!(ids, expected[10..12]);
}

async fn fill(bench: &Bench) {
    for (id, kind, state, team) in [
        ("a", "Transfer", Status::Pending, Some("blue")),
        ("b", "Transfer", Status::Completed, Some("red")),
        ("c", "Order", Status::Completed, Some("blue")),
        ("d", "Order", Status::InDoubt, None),
        ("e", "Transfer", Status::Completed, Some("blue")),
    ] {
        let mut record = bench.record(id);
        (record.kind, record.state) = (kind.to_owned(), state);
        record
            .labels
            .extend(team.map(|team| ("team".to_owned(), team.to_owned())));
        bench.insert(vec![record]).await;
    }
}

/// Filters, and what is found with them in [`fill`].
fn cases() -> Vec<(Filter, &'static str)> {
    vec![
        (Filter::new(), "edcba"),
        (Filter::new().kind("Transfer"), "eba"),
        (Filter::new().kind("Unknown"), ""),
        (Filter::new().state(Status::Completed), "ecb"),
        (
            Filter::new().state(Status::Pending).state(Status::InDoubt),
            "da",
        ),
        (Filter::new().state(Status::Failed), ""),
        (Filter::new().label("team", "blue"), "eca"),
        (Filter::new().label("team", "blue").label("other", "x"), ""),
        (
            Filter::new()
                .kind("Transfer")
                .state(Status::Completed)
                .label("team", "blue"),
            "e",
        ),
    ]
}

async fn found(bench: &Bench, filter: &Filter) -> String {
    pages(bench, filter, 2)
        .await
        .iter()
        .map(ToString::to_string)
        .collect()
}

pub(super) async fn filters(bench: Bench) {
    fill(&bench).await;
    for (filter, expected) in cases() {
        assert_eq!(found(&bench, &filter).await, expected, "{filter:?}");
    }
}

pub(super) async fn counts(bench: Bench) {
    assert_eq!(
        bench
            .store
            .count(Filter::new())
            .await
            .expect("a count is answered"),
        0
    );
    fill(&bench).await;
    for (filter, expected) in cases() {
        let count = bench
            .store
            .count(filter.clone())
            .await
            .expect("a count is answered");
        assert_eq!(count, expected.len() as u64, "{filter:?}");
    }
}

pub(super) async fn by_labels_of_any_name(bench: Bench) {
    let names = ["app.example.org/name", "$price", "", "a.b.c"];
    for (number, name) in names.into_iter().enumerate() {
        let mut record = bench.record(number.to_string());
        record.labels.insert(name.to_owned(), "v".to_owned());
        bench.insert(vec![record]).await;
    }
    for (number, name) in names.into_iter().enumerate() {
        for (value, expected) in [
            ("v", number.to_string()),
            ("w", String::new()),
            ("$v", String::new()),
        ] {
            let filter = Filter::new().label(name, value);
            assert_eq!(found(&bench, &filter).await, expected, "{filter:?}");
            let count = bench
                .store
                .count(filter)
                .await
                .expect("a count is answered");
            assert_eq!(count, expected.len() as u64);
        }
    }
}
