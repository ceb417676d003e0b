//! Documents that cannot be read, and documents that a crash leaves behind.

use std::time::Duration;

use bson::{Bson, Document, doc};
use milestone_runtime::{
    Method, Runtime,
    core::{
        machine,
        record::{MilestoneId, Status},
    },
    dynamic::Action,
    store::{Filter, Page},
};
use milestone_tests::{
    checker::checked,
    flaky::{Cut, Flaky},
    ledger::Ledger,
    logs,
    look::{attempts, successes, until_true},
    on_stores,
    place::Place,
};

on_stores!(memory, sqlite, mongodb:
    f09_what_cannot_be_read_is_skipped_and_named,
    f09_broken_while_it_waits_for_its_retry,
    f10_a_crash_between_any_two_writes,
    f10_the_checker_finds_what_does_not_agree,
);

/// A stored milestone that is due, as somebody or something else has left it.
async fn due(place: &Place, client: &Runtime, id: &str) -> Document {
    let start = client.start("a", Action::new("a").idempotent(), ()).id(id);
    start.await.unwrap();
    place.raw(id).await.unwrap()
}

/// F09: documents edited by hand or written by a newer version are in the queue, in front of all others. Each is skipped, named once in the
/// log and by every way of reading, and left as it is; all others run.
async fn f09_what_cannot_be_read_is_skipped_and_named(place: Place) {
    logs::collect();
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let unique = bson::oid::ObjectId::new().to_hex();
    let mut broken = Vec::new();
    for (what, field, value) in [
        ("newer", "schema", Bson::from(1_000)),
        ("odd-state", "state", "thinking".into()),
        ("odd-actions", "actions", doc! { "0": "a" }.into()),
        ("odd-type", "type", 7.into()),
    ] {
        let id = format!("{what}-{unique}");
        let mut document = due(&place, &client, &id).await;
        document.insert(field, value);
        place.plant(document.clone()).await;
        broken.push((id, document));
    }
    let worker = place
        .builder()
        .concurrency(2)
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    for _ in 0..10 {
        let graph = Action::new("a").idempotent();
        let handle = client.start("a", graph, ()).await.unwrap();
        handle.outcome().await.unwrap();
    }
    assert_eq!(ledger.count("a"), 10);
    for (id, document) in &broken {
        until_true("it is named", || !logs::lines_with(id).is_empty()).await;
        let lines = logs::lines_with(id);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("ERROR"), "{lines:?}");
        let error = client.get(&**id).await.unwrap_err();
        assert_eq!(error.code(), "unreadable");
        assert!(error.to_string().contains(&**id), "{error}");
        let again = client
            .start("a", Action::new("a").idempotent(), ())
            .id(&**id);
        assert_eq!(again.await.unwrap_err().code(), "unreadable");
        assert_eq!(place.raw(&**id).await.as_ref(), Some(document));
    }
    let page = Page {
        limit: 50,
        ..Page::default()
    };
    let listed = client.list(Filter::new(), page).await.unwrap();
    assert_eq!((listed.records.len(), listed.unreadable.len()), (10, 4));
    let newer = listed
        .unreadable
        .iter()
        .find(|one| one.id.starts_with("newer"));
    let newer = newer.unwrap().to_string();
    assert!(newer.contains("1000"), "the version is told: {newer}");
}

/// F09: a milestone is broken by hand between two attempts. It is skipped, and once it is mended it goes on.
async fn f09_broken_while_it_waits_for_its_retry(place: Place) {
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let sound = due(&place, &client, "mended").await;
    let mut broken = sound.clone();
    broken.insert("state", 7);
    place.plant(broken.clone()).await;
    let worker = place.builder().register(ledger.gives("a", 1));
    let worker = worker.build().await.unwrap();
    assert_eq!(worker.run_once().await.unwrap().found, 0);
    assert_eq!(place.raw("mended").await, Some(broken));
    place.plant(sound).await;
    // A worker that has named it looks at it again half a minute later; one that starts looks at once.
    let other = place.builder().register(ledger.gives("a", 1));
    let other = other.build().await.unwrap();
    assert_eq!(other.run_once().await.unwrap().resolved, 1);
}

/// The graphs whose writes are cut: one that completes after a failure, and one that is undone.
fn graphs(victim: &str) -> [(&'static str, Action); 2] {
    let step = |name: &str| {
        let action = Action::new(name).method(format!("{name}-{victim}"));
        action.idempotent()
    };
    let completes = step("root")
        .next([step("fails-once"), step("right")])
        .done(step("done"));
    let taken_back = |name: &str| step(name).undo(format!("undo-{victim}"));
    let undone = taken_back("one").next([taken_back("two").next([step("bad")])]);
    [("completes", completes), ("undone", undone)]
}

/// What the actions of the graphs do, under names that only this victim and its heir have.
fn methods(ledger: &Ledger, victim: &str) -> Vec<Method> {
    let name = |name: &str| format!("{name}-{victim}");
    let mut methods: Vec<Method> = ["root", "right", "done", "one", "two"]
        .map(|action| ledger.gives(&name(action), action))
        .into();
    methods.push(ledger.fails_first(&name("fails-once"), 1));
    methods.push(ledger.fails_first(&name("undo"), 1));
    methods.push(ledger.fails_for_good(&name("bad")));
    methods
}

/// One victim: its writes are cut there, it dies, and its heir goes on. Tells whether the cut came before the end.
async fn dies_at(place: &Place, heir: &Runtime, ledger: &Ledger, cut: Cut) -> bool {
    const LEASE: Duration = Duration::from_millis(300);
    let victim = format!("{}-{}", cut.at, cut.arrives);
    let store = Flaky::new(place.store().await);
    store.cut(cut);
    let mut builder = place.builder().store(store.clone()).lease(LEASE);
    for method in methods(ledger, &victim) {
        builder = builder.register(method);
    }
    let runtime = builder
        .start_timeout(Duration::from_millis(100))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let mut ids: Vec<(&str, MilestoneId)> = Vec::new();
    for (end, graph) in graphs(&victim) {
        let id = format!("{end}-{victim}");
        let start = runtime.start(end, graph, ()).id(&*id).await;
        if start.is_ok() {
            ids.push((end, MilestoneId::String(id)));
        }
    }
    let ended = async || {
        for (_, id) in &ids {
            let record = heir.get(id.clone()).await.unwrap().unwrap();
            assert_eq!(machine::check(&record), []);
            if !record.state.is_terminal() {
                return false;
            }
        }
        true
    };
    while !store.is_cut() && !ended().await {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let was_cut = store.is_cut();
    drop(runtime);
    heir.register_all(methods(ledger, &victim)).unwrap();
    while !ended().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (end, id) in ids {
        let record = heir.get(id).await.unwrap().unwrap();
        let expected = [Status::Completed, Status::Undone][usize::from(end == "undone")];
        assert_eq!(record.state, expected, "{record:#?}");
        for action in &record.actions {
            let completed = successes(&record, &action.name);
            let completed = completed.iter().filter(|success| **success == Some(true));
            let undone = usize::from(action.undo.is_some());
            let once = usize::from(action.name != "bad") + undone;
            assert_eq!(completed.count(), once, "{}: {record:#?}", action.name);
        }
    }
    was_cut
}

/// F10: a worker dies before or after any of its writes arrives. State, dates and attempts agree in every document, whenever it is looked at;
/// another worker goes on, and every action and every undo is completed once.
async fn f10_a_crash_between_any_two_writes(place: Place) {
    const AT_ONCE: usize = 8;
    let heir = place.builder().lease(Duration::from_millis(300));
    let heir = heir.build().await.unwrap();
    heir.spawn();
    let ledger = Ledger::new();
    let (mut first, mut cuts) = (1, 0);
    loop {
        let victims = (first..first + AT_ONCE).flat_map(|at| {
            [false, true].map(|arrives| dies_at(&place, &heir, &ledger, Cut { at, arrives }))
        });
        let were_cut = futures_util::future::join_all(victims).await;
        checked(&heir).await;
        cuts += were_cut.iter().filter(|cut| **cut).count();
        // Further on, all of them end before their cut.
        if !were_cut.contains(&true) || first > 40 {
            break;
        }
        first += AT_ONCE;
    }
    println!(
        "{cuts} workers died between two writes on {:?}",
        place.kind()
    );
    // How many there are depends on how many results go in one write.
    assert!(cuts >= 10, "only {cuts} cuts");
}

/// F10: the checker walks a whole collection, page by page, and finds the one document whose parts do not agree.
async fn f10_the_checker_finds_what_does_not_agree(place: Place) {
    let ledger = Ledger::new();
    let runtime = place.builder().register(ledger.fails_first("a", 1));
    let runtime = runtime.build().await.unwrap();
    runtime.spawn();
    for _ in 0..3 {
        let handle = runtime.start("a", "a", ()).await.unwrap();
        handle.outcome().await.unwrap();
    }
    let handle = runtime.start("a", "a", ()).id("broken").await.unwrap();
    handle.outcome().await.unwrap();
    assert_eq!(checked(&runtime).await.len(), 4);
    let record = handle.record().await.unwrap();
    let began = attempts(&record, "a")[0].begin_date;
    let sound = place.raw("broken").await.unwrap();
    let date = bson::DateTime::from_millis(began.timestamp_millis() - 1_000_000);
    let cases: [(&str, &str, Bson); 4] = [
        ("state", "its state is running", "running".into()),
        ("endDate", "its dates are not in order", date.into()),
        (
            "report",
            "ended attempts, the report has 0",
            Vec::<Bson>::new().into(),
        ),
        (
            "due",
            "`due` and `next` do not agree",
            vec![due_entry()].into(),
        ),
    ];
    for (field, expected, value) in cases {
        let mut document = sound.clone();
        document.insert(field, value);
        place.plant(document).await;
        let runtime = runtime.clone();
        let found = tokio::spawn(async move { checked(&runtime).await }).await;
        let panic = found.unwrap_err().into_panic();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(
            message.contains("milestone broken") && message.contains(expected),
            "{message}"
        );
    }
    place.plant(sound).await;
    checked(&runtime).await;
}

fn due_entry() -> Bson {
    let at = bson::DateTime::from_millis(0);
    doc! { "queue": "default", "at": at, "method": "a" }.into()
}
