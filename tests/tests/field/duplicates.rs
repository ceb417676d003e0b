//! Nothing twice.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use milestone_runtime::{
    CommandError, Conflict, Method, OutcomeError, Runtime, StartError,
    action::{ActionError, Options},
    core::record::{Order, Status},
    dynamic::Action,
    store::Filter,
};
use milestone_tests::{
    checker::checked,
    ledger::{Ledger, quick},
    look::{attempts, from_env, until, until_true},
    on_stores,
    place::{Kind, Place, run_within},
};
use rusqlite::Connection;
use tokio::sync::watch;

use super::support::gate;

on_stores!(memory, sqlite, mongodb:
    f15_two_that_race_for_one_id,
    f16_each_plain_action_starts_once,
    f17_ten_workers_and_one_retry,
    f21_optional_fields_do_not_collide,
    f22_an_end_before_the_cancel,
    f22_a_cancel_before_the_end,
    f22_ends_and_cancels_race,
);

/// `MILESTONE_ROUNDS` says how often that is done, each time in a new place.
fn in_rounds(kind: Kind) {
    for round in 1..=from_env("MILESTONE_ROUNDS", 1) {
        run_within(Duration::from_mins(10), kind, |place| {
            a_thousand_in_a_second(place, round)
        });
    }
}

#[test]
fn f04_a_thousand_started_in_a_second_on_sqlite() {
    in_rounds(Kind::Sqlite);
}

#[test]
fn f04_a_thousand_started_in_a_second_on_mongodb() {
    in_rounds(Kind::MongoDb);
}

/// 1,000 milestones are started within about a second, and four workers leave none of them unfinished.
async fn a_thousand_in_a_second(place: Place, round: usize) {
    const COUNT: usize = 1_000;
    let ledger = Ledger::new();
    let mut workers = Vec::new();
    for _ in 0..4 {
        let builder = place.builder().register(ledger.gives("a", 1));
        let worker = builder.build().await.unwrap();
        worker.spawn();
        workers.push(worker);
    }
    let client = place.builder().client().build().await.unwrap();
    let began = Instant::now();
    let starts = (0..COUNT).map(|_| {
        let graph = Action::new("a").idempotent();
        client.start("a", graph, ()).into_future()
    });
    let started = futures_util::future::join_all(starts).await;
    assert!(started.iter().all(Result::is_ok));
    let in_time = began.elapsed();
    loop {
        let left = client.count(Filter::unfinished()).await.unwrap();
        if left == 0 {
            break;
        }
        assert!(
            began.elapsed() < Duration::from_mins(5),
            "{left} are unfinished after five minutes"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!(
        "round {round}: {COUNT} started on {:?} within {in_time:?}, all had ended after {:?}",
        place.kind(),
        began.elapsed()
    );
    let records = checked(&client).await;
    assert_eq!(records.len(), COUNT);
    assert!(
        records
            .iter()
            .all(|record| record.state == Status::Completed && record.report.len() == 1)
    );
    assert_eq!(ledger.count("a"), COUNT);
}

/// F15: twenty tasks start one id at the same time, through two runtimes, half of them with other parameters. One of the two kinds is
/// stored; all that mean it attach to it, all others are told so.
async fn f15_two_that_race_for_one_id(place: Place) {
    let ledger = Ledger::new();
    let mut runtimes = Vec::new();
    for _ in 0..2 {
        let builder = place.builder().register(ledger.gives("a", 1));
        let runtime = builder.build().await.unwrap();
        runtime.spawn();
        runtimes.push(runtime);
    }
    let tasks: Vec<_> = (0..20)
        .map(|n: usize| {
            let runtime = &runtimes[n % 2];
            let start = runtime.start("a", "a", doc! { "kind": i32::from(n % 4 < 2) });
            tokio::spawn(start.id("one").into_future())
        })
        .collect();
    let mut won = Vec::new();
    for (n, task) in tasks.into_iter().enumerate() {
        match task.await.unwrap() {
            Ok(handle) => {
                won.push(n % 4 < 2);
                handle.outcome().await.unwrap();
            }
            Err(StartError::Conflict { id, conflict }) => {
                assert_eq!((&*id.to_string(), conflict), ("one", Conflict::Parameters));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(won.len(), 10);
    assert!(won.iter().all(|kind| *kind == won[0]), "{won:?}");
    assert_eq!(ledger.count("a"), 1);
    assert_eq!(runtimes[0].count(Filter::new()).await.unwrap(), 1);
    // After its end, too.
    let other = runtimes[1].start("a", "a", "other").id("one").await;
    assert_eq!(other.unwrap_err().code(), "conflict");
    let other = runtimes[1].start("b", "a", doc! { "kind": i32::from(won[0]) });
    let error = other.id("one").await.unwrap_err();
    assert!(
        error.to_string().contains("the type `a`, not `b`"),
        "{error}"
    );
}

/// A plain action that notes its milestone, and takes a random time.
fn plain(ledger: &Ledger, name: &'static str) -> Method {
    let ledger = ledger.clone();
    Method::new(name, move |call| {
        ledger.note(format!("{} {name}", call.context().milestone_id()));
        async move {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..10))).await;
            Ok::<_, ActionError>(name)
        }
    })
}

/// F16: N milestones and W workers, which come and go at random: each plain action starts once.
async fn f16_each_plain_action_starts_once(place: Place) {
    const COUNT: usize = 100;
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let (place, ledger) = (place.clone(), ledger.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..50))).await;
                let builder = place.builder().concurrency(fastrand::usize(1..20));
                let builder = builder.register(plain(&ledger, "a"));
                let worker = builder.register(plain(&ledger, "b")).build().await;
                let worker = worker.unwrap();
                worker.spawn();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(50..300))).await;
                worker.shutdown().await;
                worker.spawn();
                worker
            })
        })
        .collect();
    let mut handles = Vec::new();
    for _ in 0..COUNT {
        let graph = Action::new("a").next(["b"]);
        handles.push(client.start("ab", graph, ()).await.unwrap());
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
    }
    for handle in &handles {
        handle.outcome().await.unwrap();
        for name in ["a", "b"] {
            let started = ledger.count(&format!("{} {name}", handle.id()));
            assert_eq!(started, 1, "{name} of {}", handle.id());
        }
    }
    assert_eq!(ledger.entries().len(), 2 * COUNT);
    for worker in workers {
        worker.await.unwrap();
    }
    checked(&client).await;
}

/// F17: a failed action is due for its retry, and ten workers poll. One of them takes it, by a claim like any other.
async fn f17_ten_workers_and_one_retry(place: Place) {
    const FAILURES: usize = 5;
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let mut workers = Vec::new();
    for _ in 0..10 {
        let noted = ledger.clone();
        let fails = Method::new("fails", move |call| {
            let number = call.context().attempt();
            noted.note(format!("{number} by {}", call.context().worker()));
            async move {
                match usize::try_from(number) {
                    Ok(number) if number > FAILURES => Ok(number),
                    _ => Err(ActionError::new("not yet")),
                }
            }
        });
        let builder = place.builder().poll(Duration::from_millis(5));
        let worker = builder.register(fails.options(quick())).build().await;
        let worker = worker.unwrap();
        worker.spawn();
        workers.push(worker);
    }
    let graph = Action::new("fails").idempotent();
    let handle = client.start("fails", graph, ()).await.unwrap();
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    let expected: Vec<String> = attempts(&record, "fails")
        .iter()
        .rev()
        .map(|attempt| format!("{} by {}", attempt.number, attempt.worker))
        .collect();
    assert_eq!(expected.len(), FAILURES + 1);
    assert_eq!(ledger.entries(), expected);
    // Every attempt has a claim of its own, and there was no other one.
    assert_eq!(record.epoch, 1 + i64::try_from(FAILURES).unwrap());
}

/// F21: fields that a milestone need not have are in indexes, none of which is unique, so two milestones without them do not collide. Nor
/// do they in a unique index that an application makes for itself over its labels.
async fn f21_optional_fields_do_not_collide(place: Place) {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    if let Some(scratch) = place.scratch() {
        let milestones = scratch.database().collection::<Document>("_milestones_");
        let mut indexes = milestones.list_indexes().await.unwrap();
        while indexes.advance().await.unwrap() {
            let index = indexes.deserialize_current().unwrap();
            let options = index.options.unwrap_or_default();
            assert_ne!(options.unique, Some(true), "{:?}", index.keys);
        }
        let own = ::mongodb::IndexModel::builder()
            .keys(doc! { "labels.order": 1 })
            .options(
                ::mongodb::options::IndexOptions::builder()
                    .unique(true)
                    .sparse(true)
                    .build(),
            )
            .build();
        milestones.create_index(own).await.unwrap();
    }
    if place.kind() == Kind::Sqlite {
        let uri = place.uri();
        let connection = Connection::open(uri.strip_prefix("sqlite:").unwrap()).unwrap();
        let mut unique = connection
            .prepare("SELECT origin FROM pragma_index_list('_milestones_') WHERE \"unique\"")
            .unwrap();
        let origins = unique.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let origins: Vec<String> = origins.map(Result::unwrap).collect();
        assert_eq!(origins, ["pk"]);
    }
    // Neither lease nor `next` nor labels nor an end: all the same to each other.
    let mut handles = Vec::new();
    for _ in 0..3 {
        handles.push(runtime.start("a", "a", ()).await.unwrap());
        handles.push(runtime.start("waits", "unknown", ()).await.unwrap());
    }
    until_true("they have run", || ledger.count("a") == 3).await;
    assert_eq!(runtime.count(Filter::new()).await.unwrap(), 6);
    let labelled = |id: &str| runtime.start("b", "unknown", ()).id(id).label("order", "7");
    labelled("first").await.unwrap();
    let second = labelled("second").await;
    if place.kind() == Kind::MongoDb {
        let error = second.unwrap_err();
        assert_eq!(error.code(), "not_stored");
        assert!(error.to_string().contains("labels.order"), "{error}");
    } else {
        second.unwrap();
    }
}

/// A runtime whose only action ends when the test says so.
async fn gated(place: &Place) -> (Runtime, Ledger, watch::Sender<bool>) {
    let ledger = Ledger::new();
    let (open, closed) = watch::channel(false);
    let builder = place.builder();
    let method = gate(&ledger, "only", &closed, quick());
    let runtime = builder.register(method).build().await.unwrap();
    runtime.spawn();
    (runtime, ledger, open)
}

/// F22: it ends first, and the cancel is told so.
async fn f22_an_end_before_the_cancel(place: Place) {
    let (runtime, _, open) = gated(&place).await;
    open.send_replace(true);
    let handle = runtime.start("job", "only", ()).await.unwrap();
    handle.outcome().await.unwrap();
    let before = handle.record().await.unwrap();
    let error = handle.cancel("too late").await.unwrap_err();
    let ended = matches!(
        error,
        CommandError::State {
            state: Status::Completed,
            ..
        }
    );
    assert!(ended, "{error}");
    assert_eq!(handle.record().await.unwrap(), before);
}

/// F22: the cancel comes first, and the result that comes after it is kept in the report of a milestone that is cancelled.
async fn f22_a_cancel_before_the_end(place: Place) {
    let (runtime, ledger, open) = gated(&place).await;
    let handle = runtime.start("job", "only", ()).await.unwrap();
    until_true("it runs", || ledger.count(runtime.worker()) > 0).await;
    let cancelled = tokio::spawn({
        let handle = handle.clone();
        async move { handle.cancel("in time").await }
    });
    until(&runtime, handle.id(), |record| record.unwind.is_some()).await;
    open.send_replace(true);
    cancelled.await.unwrap().unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert!(matches!(error, OutcomeError::Cancelled { .. }), "{error}");
    let record = handle.record().await.unwrap();
    assert_eq!(record.report[0].success, Some(true));
    assert_eq!(
        handle.cancel("again").await.unwrap_err().code(),
        "command_state"
    );
}

/// F22: the terminal transition, a completion or a failure, races with a cancel from another process, in 100 rounds of random timing. One
/// of them wins, both are told the same, and the document agrees with itself.
async fn f22_ends_and_cancels_race(place: Place) {
    const ROUNDS: usize = 100;
    let timed = |name: &'static str, fails: bool| {
        Method::new(name, move |_| async move {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..4_000))).await;
            if fails {
                Err(ActionError::fatal("no"))
            } else {
                Ok("yes")
            }
        })
        .options(Options::idempotent())
    };
    let worker = place
        .builder()
        .register(timed("succeeds", false))
        .register(timed("fails", true))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let client = place.builder().client().build().await.unwrap();
    let (mut ended, mut cancelled) = (0, 0);
    for round in 0..ROUNDS {
        let name = ["succeeds", "fails"][round % 2];
        let handle = worker.start(name, name, ()).await.unwrap();
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..6_000))).await;
        let order = Order::Cancel {
            reason: "a race".to_owned(),
        };
        let told = client.command(handle.id().clone(), order).await;
        match (told, handle.outcome().await) {
            (Ok(_), Err(OutcomeError::Cancelled { .. })) => cancelled += 1,
            (Err(CommandError::State { .. } | CommandError::Refused { .. }), Ok(_))
                if name == "succeeds" =>
            {
                ended += 1;
            }
            (
                Err(CommandError::State { .. } | CommandError::Refused { .. }),
                Err(OutcomeError::Failed { .. }),
            ) if name == "fails" => ended += 1,
            other => panic!("{name}: {other:?}"),
        }
    }
    println!("{ended} had ended before, {cancelled} were cancelled");
    assert_eq!(checked(&client).await.len(), ROUNDS);
}
