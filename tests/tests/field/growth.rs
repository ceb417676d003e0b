//! Growth: many failures, large values, wide and long graphs, long backlogs.

use std::time::{Duration, Instant};

use milestone_runtime::{
    Method, Runtime,
    action::{ActionError, RetryPolicy},
    core::{limits::Limits, record::Status},
    dynamic::Action,
    store::Filter,
};
use milestone_tests::{
    checker::checked,
    ledger::{Ledger, quick},
    look::{attempts, from_env},
    on_stores,
    place::{Kind, Place, run_within},
};

on_stores!(memory, sqlite, mongodb:
    f33_hundreds_of_large_failures,
    f36_parameters_of_ten_megabytes,
    f36_a_graph_over_the_limit,
);

/// F33: an action fails 200 times with large errors, through every part of the runtime. The stored document stays below 64 KiB, the first
/// and the newest attempts are in its report, and the count is right.
async fn f33_hundreds_of_large_failures(place: Place) {
    const FAILURES: i64 = 200;
    let size = async |id| {
        let document = place.raw(id).await.unwrap();
        document.to_vec().unwrap().len()
    };
    let often = quick().retry(
        RetryPolicy::new()
            .base(Duration::from_millis(1))
            .cap(Duration::from_millis(2)),
    );
    let client = place.builder().client().build().await.unwrap();
    let (seen, mut numbers) = tokio::sync::mpsc::unbounded_channel();
    let fails = Method::new("fails", move |call| {
        let number = call.context().attempt();
        seen.send(number).unwrap();
        async move {
            if number > FAILURES {
                return Ok(number);
            }
            Err(ActionError::new(format!("{number} ").repeat(5_000)))
        }
    });
    let builder = place.builder().poll(Duration::from_millis(5));
    let worker = builder.register(fails.options(often)).build().await;
    let worker = worker.unwrap();
    worker.spawn();
    let handle = client.start("fails", Action::new("fails").idempotent(), ());
    let handle = handle.await.unwrap();
    while let Some(number) = numbers.recv().await {
        if number % 20 == 0 {
            let size = size(handle.id().clone()).await;
            assert!(size < 64 * 1024, "{size} after {number} failures");
        }
        if number > FAILURES {
            break;
        }
    }
    handle.outcome().await.unwrap();
    assert!(size(handle.id().clone()).await < 64 * 1024);
    let record = handle.record().await.unwrap();
    let kept = attempts(&record, "fails");
    let newest: Vec<i64> = kept.iter().take(3).map(|attempt| attempt.number).collect();
    assert_eq!(newest, [FAILURES + 1, FAILURES, FAILURES - 1]);
    let first = kept.last().unwrap();
    assert_eq!(first.number, 1);
    assert!(first.error.as_ref().unwrap().message.starts_with("1 1 1 "));
    assert_eq!(
        i64::try_from(kept.len()).unwrap() + record.report_dropped,
        FAILURES + 1
    );
    assert_eq!(record.action("fails").unwrap().1.attempts, FAILURES + 1);
    checked(&client).await;
}

/// F36: parameters of 10 MB are refused at the start with the limit's name, and work where the limit is higher.
async fn f36_parameters_of_ten_megabytes(place: Place) {
    let large = "x".repeat(10_000_000);
    let runtime = place.builder().build().await.unwrap();
    let error = runtime.start("large", "a", &large).await.unwrap_err();
    assert_eq!(error.code(), "limit_size");
    let text = error.to_string();
    for part in ["`large`", "10000005 bytes", "`parameters` is 4194304"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 0);

    let limits = Limits::new().parameters(20_000_000);
    let measure = Method::new("measure", |call| async move {
        let length = call.parameters().as_str().map(str::len);
        Ok::<_, ActionError>(u32::try_from(length.unwrap_or_default()).unwrap_or_default())
    });
    let builder = place.builder().limits(limits).register(measure);
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let handle = runtime.start("large", "measure", &large).await.unwrap();
    let outputs = handle.outcome().await.unwrap();
    assert_eq!(outputs.get_i64("measure").unwrap(), 10_000_000);
    // The document has a limit of its own.
    let error = runtime.start("large", "measure", "x".repeat(15_000_000));
    let text = error.await.unwrap_err().to_string();
    assert!(text.contains("`document` is 12582912"), "{text}");
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 1);
}

/// F36: a fan-out and a chain that are too large are refused at the start with the limit, and nothing is stored.
async fn f36_a_graph_over_the_limit(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    let error = runtime.start("wide", fan_out(4_095), ()).await.unwrap_err();
    assert!(error.to_string().contains("4096"), "{error}");
    let error = runtime.start("long", chain(5_000), ()).await.unwrap_err();
    assert!(error.to_string().contains("limit"), "{error}");
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 0);
}

/// A root, so many leaves, and an end behind all of them.
fn fan_out(leaves: usize) -> Action {
    let leaves = (0..leaves).map(|n| Action::new(format!("leaf-{n}")).method("leaf"));
    Action::new("root").next(leaves).done("end")
}

/// So many actions, one after the other.
fn chain(length: usize) -> Action {
    let mut graph = Action::new(format!("a{length}")).method("leaf");
    for n in (1..length).rev() {
        graph = Action::new(format!("a{n}")).method("leaf").next([graph]);
    }
    graph
}

/// A root, chains of ten below it with so many actions in all, and an end behind all of them.
fn chains_of_ten(actions: usize) -> Action {
    let chains = (0..actions / 10).map(|c| {
        let name = |n: usize| Action::new(format!("c{c}-{n}")).method("leaf");
        let mut graph = name(10);
        for n in (1..10).rev() {
            graph = name(n).next([graph]);
        }
        graph
    });
    Action::new("root").next(chains).done("end")
}

/// Runs a graph on a worker with many places, and tells how long it took.
async fn runs(place: Place, graph: Action) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .concurrency(500)
        .register(ledger.gives("root", 1))
        .register(ledger.gives("leaf", 1))
        .register(ledger.gives("end", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let began = Instant::now();
    let handle = runtime.start("large", graph, ()).await.unwrap();
    let record = handle.ended().await.unwrap();
    println!(
        "{} actions on {:?}: {:?}",
        record.actions.len(),
        place.kind(),
        began.elapsed()
    );
    assert_eq!(record.state, Status::Completed);
    assert_eq!(ledger.entries().len(), record.actions.len());
    assert!(record.actions.iter().all(|action| action.attempts == 1));
    checked(&runtime).await;
}

/// Runs a graph of that size, or, where this is a build or a server for which it takes minutes, of a smaller one. With `MILESTONE_LARGE` all
/// have their full size.
fn large(kind: Kind, graph: fn(usize) -> Action, size: usize, in_short: usize) {
    let is_full = std::env::var_os("MILESTONE_LARGE").is_some();
    let size = if is_full { size } else { in_short };
    run_within(Duration::from_mins(10), kind, |place| {
        runs(place, graph(size))
    });
}

macro_rules! large_graphs {
    ($($name:ident: $kind:ident, $graph:expr, $size:expr, $in_short:expr;)+) => {$(
        #[test]
        fn $name() {
            large(Kind::$kind, $graph, $size, $in_short);
        }
    )+};
}

large_graphs! {
    f36_a_fan_out_of_2000_in_memory: Memory, fan_out, 2_000, 2_000;
    f36_a_fan_out_of_2000_on_sqlite: Sqlite, fan_out, 2_000, 2_000;
    f36_a_fan_out_of_2000_on_mongodb: MongoDb, fan_out, 2_000, 300;
    f36_a_chain_of_1000_in_memory: Memory, chain, 1_000, 200;
    f36_a_chain_of_1000_on_sqlite: Sqlite, chain, 1_000, 200;
    f36_a_chain_of_1000_on_mongodb: MongoDb, chain, 1_000, 200;
    a_graph_of_2000_actions_on_sqlite: Sqlite, chains_of_ten, 2_000, 300;
    a_graph_of_2000_actions_on_mongodb: MongoDb, chains_of_ten, 2_000, 300;
}

/// A backlog that nobody has worked on is drained completely, and each milestone runs once.
async fn a_backlog(place: Place, count: usize, workers: usize) {
    const AT_ONCE: usize = 1_000;
    let client = place.builder().client().build().await.unwrap();
    let began = Instant::now();
    for first in (0..count).step_by(AT_ONCE) {
        let starts = (first..count.min(first + AT_ONCE)).map(|n| {
            let graph = Action::new("a").idempotent();
            client
                .start("a", graph, ())
                .id(format!("{n}"))
                .into_future()
        });
        for started in futures_util::future::join_all(starts).await {
            started.unwrap();
        }
    }
    let started = began.elapsed();
    let began = Instant::now();
    let ledger = Ledger::new();
    let mut robots: Vec<Runtime> = Vec::new();
    for _ in 0..workers {
        let noted = ledger.clone();
        let a = Method::new("a", move |call| {
            noted.note(call.context().milestone_id().to_string());
            async { Ok::<_, ActionError>(()) }
        });
        let builder = place.builder().register(a.options(quick()));
        let robot = builder.build().await.unwrap();
        robot.spawn();
        robots.push(robot);
    }
    while client.count(Filter::unfinished()).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!(
        "{count} on {:?}: started within {started:?}, drained by {workers} workers within {:?}",
        place.kind(),
        began.elapsed()
    );
    let completed = Filter::new().state(Status::Completed);
    assert_eq!(client.count(completed).await.unwrap(), count as u64);
    let mut ran = ledger.entries();
    assert_eq!(ran.len(), count);
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), count, "each ran once");
}

/// `MILESTONE_BACKLOG_SQLITE` says how many; it takes 50,000.
#[test]
fn a_backlog_on_sqlite() {
    let count = from_env("MILESTONE_BACKLOG_SQLITE", 2_000);
    run_within(Duration::from_mins(15), Kind::Sqlite, |place| {
        a_backlog(place, count, 1)
    });
}

/// `MILESTONE_BACKLOG_MONGODB` says how many; it takes 5,000.
#[test]
fn a_backlog_on_mongodb() {
    let count = from_env("MILESTONE_BACKLOG_MONGODB", 1_000);
    run_within(Duration::from_mins(15), Kind::MongoDb, |place| {
        a_backlog(place, count, 3)
    });
}
