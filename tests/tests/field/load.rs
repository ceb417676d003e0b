//! Many at once: branches that end together, workers beside one another, and much that is long over.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bson::{Bson, Document, RawDocumentBuf, doc};
use milestone_runtime::{
    Filter, Method, MilestoneRecord, Runtime,
    action::{ActionError, Call},
    core::record::Status,
    dynamic::Action,
    store::{ClaimRequest, Page, Share, Store},
};
use milestone_tests::{
    checker::checked,
    commands::{Command, Commands},
    ledger::{Ledger, quick},
    look::{attempts, until_true},
    on_stores,
    place::{Kind, Place, bare, mongodb_uri, run, run_async},
    server::{self, Scratch},
};
use tokio::sync::Barrier;

use super::support::LEASE;

const BRANCHES: usize = 100;

on_stores!(memory, sqlite, mongodb:
    f32_a_hundred_branches_end_together,
    f40_no_more_is_held_than_can_run,
);

mod several {
    use super::*;

    on_stores!(sqlite, mongodb:
        f32_branches_of_several_milestones_on_two_workers,
        f32_the_worker_dies_while_they_end,
    );
}

/// A branch, which gives its number when as many as the barrier wants are as far.
fn branch(ledger: &Ledger, together: &Arc<Barrier>) -> Method {
    let (ledger, together) = (ledger.clone(), Arc::clone(together));
    Method::new("branch", move |call: Call| {
        let (ledger, together) = (ledger.clone(), Arc::clone(&together));
        async move {
            let action = call.context().action().to_owned();
            ledger.note(format!("{} {action}", call.context().milestone_id()));
            together.wait().await;
            Ok::<_, ActionError>(action)
        }
    })
    .options(quick())
}

/// What follows all branches, and gives how many outputs it sees.
fn join(ledger: &Ledger) -> Method {
    let ledger = ledger.clone();
    Method::new("join", move |call: Call| {
        ledger.note(format!("{} join", call.context().milestone_id()));
        let input = call.input();
        let right = input.iter().filter(|(name, output)| {
            name.starts_with("branch-") && output.as_str() == Some(&***name)
        });
        let seen = i64::try_from(right.count()).unwrap();
        async move { Ok::<_, ActionError>(seen) }
    })
    .options(quick())
}

fn names() -> impl Iterator<Item = String> {
    (0..BRANCHES).map(|number| format!("branch-{number}"))
}

fn fan() -> Action {
    let branches = names().map(|name| Action::new(name).method("branch").idempotent());
    let join = Action::new("join").idempotent();
    Action::new("root").idempotent().next(branches).done(join)
}

/// Every branch has succeeded once, and the join has seen all of them.
fn assert_complete(record: &MilestoneRecord) {
    assert_eq!(record.state, Status::Completed);
    for name in names() {
        let succeeded = attempts(record, &name)
            .into_iter()
            .filter(|attempt| attempt.success == Some(true))
            .count();
        // The report keeps the newest attempts only; the output is there all the same.
        assert!(succeeded <= 1, "{name} has succeeded {succeeded} times");
        let output = record.action(&name).unwrap().1.output.as_ref();
        assert_eq!(output.and_then(Bson::as_str), Some(&*name));
    }
    let joined = &record.action("join").unwrap().1.output;
    assert_eq!(*joined, Some(Bson::Int64(BRANCHES.try_into().unwrap())));
}

/// F32: a hundred branches wait for each other and end at once. No output is lost, and what follows starts once and sees all.
async fn f32_a_hundred_branches_end_together(place: Place) {
    let ledger = Ledger::new();
    let together = Arc::new(Barrier::new(BRANCHES));
    let worker = place
        .builder()
        .concurrency(BRANCHES)
        .register(ledger.gives("root", 1))
        .register(branch(&ledger, &together))
        .register(join(&ledger))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let handle = worker.start("fan", fan(), ()).await.unwrap();
    handle.outcome().await.unwrap();
    let id = handle.id();
    for name in names() {
        assert_eq!(ledger.count(&format!("{id} {name}")), 1, "{name}");
    }
    assert_eq!(ledger.count(&format!("{id} join")), 1);
    assert_complete(&handle.record().await.unwrap());
    checked(&worker).await;
}

/// F32: the branches of four milestones end together, on two workers.
async fn f32_branches_of_several_milestones_on_two_workers(place: Place) {
    const MILESTONES: usize = 4;
    let ledger = Ledger::new();
    let together = Arc::new(Barrier::new(BRANCHES));
    let client = place.builder().client().build().await.unwrap();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let builder = place.builder().concurrency(2 * BRANCHES);
        let worker = builder
            .register(ledger.gives("root", 1))
            .register(branch(&ledger, &together))
            .register(join(&ledger))
            .build()
            .await
            .unwrap();
        worker.spawn();
        workers.push(worker);
    }
    let starts = (0..MILESTONES).map(|_| client.start("fan", fan(), ()).into_future());
    let mut branches = BTreeMap::new();
    for handle in futures_util::future::join_all(starts).await {
        let handle = handle.unwrap();
        handle.outcome().await.unwrap();
        assert_complete(&handle.record().await.unwrap());
        assert_eq!(ledger.count(&format!("{} join", handle.id())), 1);
        branches.insert(handle.id().to_string(), BRANCHES);
    }
    // Each started once.
    for entry in ledger.entries() {
        if let Some((id, "branch")) = entry
            .split_once(' ')
            .map(|(id, name)| (id, name.split('-').next().unwrap()))
        {
            *branches.get_mut(id).unwrap() -= 1;
        }
    }
    assert!(branches.values().all(|left| *left == 0), "{branches:?}");
    checked(&client).await;
}

/// A branch of which the first half ends together, and the second half never.
fn half_of_them(ledger: &Ledger) -> Method {
    const HALF: usize = BRANCHES / 2;
    let (ledger, together) = (ledger.clone(), Arc::new(Barrier::new(HALF)));
    Method::new("branch", move |call: Call| {
        let (ledger, together) = (ledger.clone(), Arc::clone(&together));
        async move {
            let action = call.context().action().to_owned();
            ledger.note(format!("{} {action}", call.context().milestone_id()));
            let number = action.trim_start_matches("branch-");
            if number.parse::<usize>().is_ok_and(|number| number >= HALF) {
                std::future::pending::<()>().await;
            }
            together.wait().await;
            Ok::<_, ActionError>(action)
        }
    })
    .options(quick())
}

/// F32: the worker dies while half of its branches end, before, while and after that is stored. Another one takes over: what is stored is not
/// run again, and the join, which the first one does not have, starts once and sees all.
async fn f32_the_worker_dies_while_they_end(place: Place) {
    for wait in [0, 5, 50] {
        let ledger = Ledger::new();
        let client = place.builder().client().build().await.unwrap();
        let first = place
            .builder()
            .lease(LEASE)
            .concurrency(BRANCHES)
            .register(ledger.gives("root", 1))
            .register(half_of_them(&ledger))
            .build()
            .await
            .unwrap();
        first.spawn();
        let handle = first.start("fan", fan(), ()).await.unwrap();
        let id = handle.id().clone();
        // With the root, that of all.
        until_true("all have begun", || ledger.entries().len() > BRANCHES).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        drop((first, handle));
        // What was on its way when it died may still land.
        tokio::time::sleep(LEASE / 2).await;
        let left = client.get(id.clone()).await.unwrap().unwrap();
        let stored: BTreeSet<String> = names()
            .filter(|name| left.action(name).unwrap().1.output.is_some())
            .collect();
        println!(
            "on {:?} the ends of {} were stored",
            place.kind(),
            stored.len()
        );
        let second = place
            .builder()
            .lease(LEASE)
            .concurrency(BRANCHES)
            .register(branch(&ledger, &Arc::new(Barrier::new(1))))
            .register(join(&ledger))
            .build()
            .await
            .unwrap();
        second.spawn();
        let handle = client.handle(id.clone());
        handle.outcome().await.unwrap();
        for name in names() {
            let started = ledger.count(&format!("{id} {name}"));
            let expected = if stored.contains(&name) { 1 } else { 2 };
            assert_eq!(started, expected, "{name}");
        }
        assert_eq!(ledger.count(&format!("{id} join")), 1);
        assert_complete(&handle.record().await.unwrap());
        checked(&client).await;
    }
}

/// What a look has cost the server.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    stages: Vec<String>,
    keys: i64,
    documents: i64,
}

fn number(document: &Document, name: &str) -> i64 {
    match document.get(name) {
        Some(Bson::Int32(number)) => (*number).into(),
        Some(Bson::Int64(number)) => *number,
        other => panic!("{name} is {other:?}"),
    }
}

/// The names of the stages of a plan, and of the indexes.
fn stages(plan: &Document, into: &mut Vec<String>) {
    let names = ["stage", "indexName"].map(|name| plan.get_str(name));
    into.extend(names.into_iter().flatten().map(str::to_owned));
    for part in plan.values() {
        match part {
            Bson::Document(part) => stages(part, into),
            Bson::Array(parts) => {
                let parts = parts.iter().filter_map(Bson::as_document);
                parts.for_each(|part| stages(part, into));
            }
            _ => {}
        }
    }
}

async fn explained(scratch: &Scratch, find: &Command) -> Cost {
    let mut command = Document::new();
    for name in ["find", "filter", "projection", "sort", "limit", "batchSize"] {
        if let Some(value) = find.document.get(name) {
            command.insert(name, value);
        }
    }
    let explain = doc! { "explain": command, "verbosity": "executionStats" };
    let explained = scratch.database().run_command(explain).await.unwrap();
    let mut named = Vec::new();
    let planner = explained.get_document("queryPlanner").unwrap();
    stages(planner.get_document("winningPlan").unwrap(), &mut named);
    let stats = explained.get_document("executionStats").unwrap();
    Cost {
        stages: named,
        keys: number(stats, "totalKeysExamined"),
        documents: number(stats, "totalDocsExamined"),
    }
}

/// An idle look and a claim of ten, among so many finished milestones: how many commands, and what the server examines for each.
async fn costs(finished: usize) -> Vec<(String, Option<Cost>)> {
    let scratch = Scratch::new().await;
    let ledger = Ledger::new();
    let runtime = bare(mongodb_uri(&server::uri(), scratch.name()))
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let over = runtime.start("a", "a", ()).await.unwrap();
    over.outcome().await.unwrap();
    runtime.shutdown().await;
    let milestones = scratch
        .database()
        .collection::<RawDocumentBuf>("_milestones_");
    let over = milestones.clone_with_type::<Document>();
    let over = over.find_one(doc! {}).await.unwrap().unwrap();
    let copies: Vec<RawDocumentBuf> = (0..finished)
        .map(|number| {
            let mut copy = over.clone();
            copy.insert("_id", format!("over-{number:06}"));
            RawDocumentBuf::try_from(&copy).unwrap()
        })
        .collect();
    for part in copies.chunks(2_000) {
        milestones.insert_many(part).await.unwrap();
    }

    let commands = Commands::new();
    let store: Arc<dyn Store> = commands.store(scratch.options().await, scratch.name());
    store.open().await.unwrap();
    let now = store.now().await.unwrap();
    let request = ClaimRequest {
        owner: "w".to_owned(),
        token: "t".to_owned(),
        limit: 10,
        now: bson::DateTime::from_millis(now.timestamp_millis() + 3_600_000),
        until: bson::DateTime::from_millis(now.timestamp_millis() + 7_200_000),
        queues: vec!["default".to_owned()],
        methods: vec!["a".to_owned()],
        expired_before: Some(now),
        except: Vec::new(),
        share: Share::all(),
        begins: None,
    };
    commands.take();
    let mut costs = Vec::new();
    let idle = store.claim(request.clone()).await.unwrap();
    assert!(idle.records.is_empty());
    let [look] = &commands.take()[..] else {
        panic!("an idle look is one command");
    };
    costs.push(("idle".to_owned(), Some(explained(&scratch, look).await)));
    let graph = || Action::new("a").idempotent();
    let starts = (0..10).map(|_| runtime.start("a", graph(), ()).into_future());
    for started in futures_util::future::join_all(starts).await {
        started.unwrap();
    }
    costs.push(("look".to_owned(), Some(explained(&scratch, look).await)));
    commands.take();
    let claim = store.claim(request).await.unwrap();
    assert_eq!(claim.records.len(), 10);
    for command in commands.take() {
        let read = command.name == "find" && !command.looks_for_work();
        let cost = if read {
            Some(explained(&scratch, &command).await)
        } else {
            None
        };
        costs.push((command.name, cost));
    }
    costs
}

/// F38: an idle look and a claim cost the same among 200 finished milestones and among 20,000 (`cargo xtask bench` has a million): as many
/// commands, by the same index, which examine as many keys and documents. SQLite is asked in the store's own tests.
#[test]
fn f38_a_claim_costs_the_same_among_many_finished_ones() {
    run_async(async {
        let few = costs(200).await;
        let many = costs(20_000).await;
        for (what, cost) in &many {
            println!("among 20,000: {what}: {cost:?}");
        }
        assert_eq!(few, many);
        let [idle, look] = [0, 1].map(|at| many[at].1.as_ref().unwrap());
        for cost in [idle, look] {
            assert!(
                cost.stages.iter().any(|stage| stage == "milestone_next"),
                "{cost:?}"
            );
            assert!(
                !cost.stages.iter().any(|stage| stage == "COLLSCAN"),
                "{cost:?}"
            );
        }
        assert!(idle.keys <= 1 && idle.documents == 0, "{idle:?}");
        assert!(look.keys <= 2 * 10 && look.documents <= 2 * 10, "{look:?}");
        let names: Vec<_> = many.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["idle", "look", "find", "find", "update"]);
    });
}

/// Eight workers, which share what is due.
async fn crowd(place: Place, count: usize) {
    const WORKERS: usize = 8;
    const PLACES: usize = 10;
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let graph = || Action::new("a").idempotent();
    for _ in 0..count / 500 {
        let starts = (0..500).map(|_| client.start("a", graph(), ()).into_future());
        for started in futures_util::future::join_all(starts).await {
            started.unwrap();
        }
    }
    let began = Instant::now();
    let mut workers: Vec<Runtime> = Vec::new();
    for _ in 0..WORKERS {
        let noted = ledger.clone();
        let a = Method::new("a", move |call: Call| {
            noted.note(call.context().milestone_id().to_string());
            async move { Ok::<_, ActionError>(1) }
        });
        let builder = place.builder().concurrency(PLACES);
        workers.push(builder.register(a.options(quick())).build().await.unwrap());
    }
    for worker in &workers {
        worker.spawn();
    }
    while client.count(Filter::unfinished()).await.unwrap() > 0 {
        assert!(
            began.elapsed() < Duration::from_mins(4),
            "they are not done"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (mut claims, mut claimed, mut missed) = (0, 0, 0);
    for worker in &workers {
        let metrics = worker.metrics();
        println!("{metrics:?}");
        claims += metrics.claims;
        claimed += metrics.claimed;
        missed += metrics.missed_claims;
    }
    println!(
        "on {:?} {WORKERS} workers with {PLACES} places took {claimed} in {claims} looks within {:?}, and missed {missed}",
        place.kind(),
        began.elapsed()
    );
    let ran: BTreeSet<String> = ledger.entries().into_iter().collect();
    assert_eq!((ran.len(), ledger.entries().len()), (count, count));
    assert_eq!(claimed, count as u64, "each was taken once");
    assert!(
        missed * 10 < claimed + missed,
        "{missed} of {claimed} were wasted"
    );
    checked(&client).await;
}

/// F39: many are due, and eight workers take them: each runs once, and less than a tenth of the claims is wasted, as a metric counts.
#[test]
fn f39_eight_workers_on_mongodb() {
    // The compatible server takes a time for each claim that grows with what is due.
    run(Kind::MongoDb, |place| crowd(place, 1_000));
}

#[test]
fn f39_eight_workers_on_sqlite() {
    run(Kind::Sqlite, |place| crowd(place, 5_000));
}

/// F40: 200 are due, each takes a while, and a worker has ten places. It never holds more than ten: there is no prefetch.
async fn f40_no_more_is_held_than_can_run(place: Place) {
    const COUNT: usize = 200;
    const PLACES: usize = 10;
    let client = place.builder().client().build().await.unwrap();
    let graph = || Action::new("slow").idempotent();
    let starts = (0..COUNT).map(|_| client.start("slow", graph(), ()).into_future());
    for started in futures_util::future::join_all(starts).await {
        started.unwrap();
    }
    let ledger = Ledger::new();
    let noted = ledger.clone();
    let slow = Method::new("slow", move |call: Call| {
        noted.note(call.context().milestone_id().to_string());
        async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, ActionError>(())
        }
    });
    let builder = place.builder().concurrency(PLACES);
    let worker = builder.register(slow.options(quick())).build().await;
    let worker = worker.unwrap();
    worker.spawn();
    let (mut most, mut looks) = (0, 0);
    while ledger.entries().len() < COUNT {
        let page = Page {
            limit: COUNT,
            ..Page::default()
        };
        let listed = client.list(Filter::unfinished(), page).await.unwrap();
        let leases = listed
            .records
            .iter()
            .filter_map(|record| record.lease.as_ref());
        let held = leases
            .filter(|lease| lease.owner == worker.worker())
            .count();
        assert!(held <= PLACES, "it holds {held}");
        (most, looks) = (most.max(held), looks + 1);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!(
        "on {:?} it held {most} at the most, in {looks} looks",
        place.kind()
    );
    assert!(most > PLACES / 2 && looks >= 10, "{most} in {looks} looks");
    while client.count(Filter::unfinished()).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ran: BTreeSet<String> = ledger.entries().into_iter().collect();
    assert_eq!((ran.len(), ledger.entries().len()), (COUNT, COUNT));
    checked(&client).await;
}
