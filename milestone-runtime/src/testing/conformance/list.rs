//! Reading many.

use bson::{DateTime, oid::ObjectId};
use milestone_core::record::{Hold, MilestoneId, Status};

use super::bench::Bench;
use crate::store::{Filter, Page, Tally};

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

/// Starts them at known times: `a` at 1,000 ms, `b` at 2,000 ms and so on; `d` is on hold.
async fn fill_in_time(bench: &Bench) {
    for (number, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let mut record = bench.record(id);
        let millis = 1_000 * (i64::try_from(number).expect("a small number") + 1);
        let kind = if number < 2 { "Old" } else { "New" };
        kind.clone_into(&mut record.kind);
        record.created_at = DateTime::from_millis(millis);
        if id == "a" {
            record.state = Status::Completed;
            record.end_date = Some(record.created_at);
        }
        if id == "d" {
            record.hold = Some(Hold {
                reason: "a reason".to_owned(),
                by: "somebody".to_owned(),
                since: record.created_at,
            });
        }
        bench.insert(vec![record]).await;
    }
}

pub(super) async fn by_dates(bench: Bench) {
    fill_in_time(&bench).await;
    let at = DateTime::from_millis;
    let all = Filter::new;
    for (filter, expected) in [
        (all().created_after(at(0)), "dcba"),
        (all().created_after(at(2_000)), "dcb"),
        (all().created_after(at(2_001)), "dc"),
        (all().created_before(at(2_000)), "a"),
        (all().created_before(at(2_001)), "ba"),
        (
            all().created_after(at(2_000)).created_before(at(4_000)),
            "cb",
        ),
        (all().created_after(at(4_001)), ""),
        (all().kind("Old").created_after(at(2_000)), "b"),
        (all().on_hold(), "d"),
        (all().on_hold().created_before(at(4_000)), ""),
    ] {
        assert_eq!(found(&bench, &filter).await, expected, "{filter:?}");
        let count = bench.store.count(filter.clone()).await;
        assert_eq!(
            count.expect("a count is answered"),
            expected.len() as u64,
            "{filter:?}"
        );
    }
}

/// An id is a value of its type: a string of 24 hexadecimal digits is no `ObjectId`.
pub(super) async fn by_ids_of_their_type(bench: Bench) {
    let object_id = ObjectId::new();
    let (typed, text) = (
        MilestoneId::from(object_id),
        MilestoneId::from(object_id.to_hex()),
    );
    let records = [typed.clone(), text.clone(), "b".into(), "c".into()].map(|id| bench.record(id));
    bench.insert(records.to_vec()).await;
    for (filter, expected) in [
        (Filter::new().id(typed.clone()), vec![typed.clone()]),
        (Filter::new().id(text.clone()), vec![text.clone()]),
        (
            Filter::new().id("b").id(typed.clone()).id("nobody"),
            vec![typed, "b".into()],
        ),
        (Filter::new().id("c").kind("Unknown"), vec![]),
        (Filter::new().id("nobody"), vec![]),
    ] {
        assert_eq!(pages(&bench, &filter, 1).await, expected, "{filter:?}");
        let count = bench.store.count(filter.clone()).await;
        assert_eq!(
            count.expect("a count is answered"),
            expected.len() as u64,
            "{filter:?}"
        );
    }
}

pub(super) async fn tallies(bench: Bench) {
    fill_in_time(&bench).await;
    let tally = |kind: &str, state: &str, count, on_hold, oldest: Option<i64>| Tally {
        kind: kind.to_owned(),
        state: state.to_owned(),
        count,
        on_hold,
        oldest: oldest.map(DateTime::from_millis),
    };
    for (filter, expected) in [
        (
            Filter::new(),
            vec![
                tally("New", "pending", 2, 1, Some(3_000)),
                tally("Old", "completed", 1, 0, None),
                tally("Old", "pending", 1, 0, Some(2_000)),
            ],
        ),
        (
            Filter::new().created_before(DateTime::from_millis(2_000)),
            vec![tally("Old", "completed", 1, 0, None)],
        ),
        (
            Filter::new().on_hold(),
            vec![tally("New", "pending", 1, 1, Some(4_000))],
        ),
        (Filter::new().kind("Unknown"), vec![]),
    ] {
        let mut found = bench
            .store
            .tally(filter.clone())
            .await
            .expect("a tally is answered");
        found.sort_by(|a, b| (&a.kind, &a.state).cmp(&(&b.kind, &b.state)));
        assert_eq!(found, expected, "{filter:?}");
    }
}

pub(super) async fn lacks_nothing_once_open(bench: Bench) {
    let lacks = bench.store.lacks().await.expect("what is lacked is told");
    assert_eq!(lacks, Vec::<String>::new());
}
