//! Leases and dead workers.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use milestone_runtime::{
    Method, Runtime,
    action::ActionError,
    core::record::{AttemptKind, Lease, MilestoneId, Status},
    dynamic::Action,
    store::Filter,
};
use milestone_tests::{
    checker::checked,
    flaky::Flaky,
    ledger::{Ledger, quick},
    look::{attempts, successes, until, until_true},
    on_stores,
    place::Place,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    sync::watch,
};

use super::support::{LEASE, POLL, gate, hangs};

on_stores!(memory, sqlite, mongodb:
    f19_removed_while_it_runs_it_does_not_come_back,
    f19_removed_in_front_of_its_result_it_does_not_come_back,
);

mod while_the_owner_lives {
    use super::*;

    on_stores!(steadily LEASE, memory, sqlite, mongodb:
        f01_a_lease_that_nobody_knows_of_is_not_extended,
        f01_what_waits_for_its_turn_is_not_kept_from_others,
        f02_without_a_timeout_others_run_and_the_lease_moves_while_its_owner_lives,
        f03_an_action_of_five_leases_starts_once,
        f12_a_restarted_worker_is_another_one,
    );
}

mod killed {
    use super::*;

    on_stores!(steadily LEASE, sqlite, mongodb: f01_killed_in_the_middle_it_runs_elsewhere);
}

/// F01: a worker is killed with SIGKILL in the middle of an action, and another one, which stood by all the time, runs it within lease and
/// one poll.
async fn f01_killed_in_the_middle_it_runs_elsewhere(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    let graph = Action::new("root").idempotent();
    let handle = client.start("job", graph, ()).await.unwrap();
    let mut mortal = Command::new(env!("CARGO_BIN_EXE_mortal"))
        .args([&*place.uri(), "root"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(mortal.stdout.take().unwrap()).lines();
    assert_eq!(
        lines.next_line().await.unwrap().as_deref(),
        Some("hangs in root")
    );

    let ledger = Ledger::new();
    let builder = place.builder().lease(LEASE);
    let other = builder.register(ledger.gives("root", 1)).build().await;
    let _other = other.unwrap().spawn();
    tokio::time::sleep(3 * LEASE).await;
    assert_eq!(ledger.count("root"), 0, "its owner lives");
    mortal.kill().await.unwrap();
    let killed = Instant::now();
    until_true("it runs elsewhere", || ledger.count("root") > 0).await;
    let took = killed.elapsed();
    println!("on {:?} it ran elsewhere after {took:?}", place.kind());
    assert!(took < 10 * (LEASE + POLL), "{took:?}");
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!(successes(&record, "root"), [Some(true), None]);
}

/// The lease as it is stored.
async fn lease_of(runtime: &Runtime, id: &MilestoneId) -> Option<Lease> {
    let record = runtime.get(id.clone()).await.unwrap();
    record.expect("the milestone is there").lease
}

/// F01: a worker takes a milestone and does not run it, since the reply of its claim is lost. It lives on and renews what it knows of,
/// but not this lease: it ends, and the milestone runs.
async fn f01_a_lease_that_nobody_knows_of_is_not_extended(place: Place) {
    let ledger = Ledger::new();
    let store = Flaky::new(place.store().await);
    let client = place.builder().client().build().await.unwrap();
    let worker = place
        .builder()
        .store(store.clone())
        .lease(LEASE)
        .register(hangs(&ledger, "other", quick()))
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    // It holds something else, so that it has a reason to renew.
    worker.spawn();
    let other = worker.start("other", "other", ()).await.unwrap();
    until_true("the other one runs", || ledger.count(worker.worker()) > 0).await;

    store.lose_next_claim();
    let graph = Action::new("a").idempotent();
    let handle = client.start("a", graph, ()).await.unwrap();
    until_true("it is taken", || !store.has_claim_to_lose()).await;
    let first = lease_of(&client, handle.id()).await.unwrap();
    let kept = lease_of(&client, other.id()).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let record = handle.record().await.unwrap();
        if record.epoch > 1 {
            break;
        }
        seen.push(record.lease.unwrap().until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(seen.iter().all(|until| *until == first.until), "{seen:?}");
    assert!(
        lease_of(&client, other.id()).await.unwrap().until > kept.until,
        "the worker has renewed what it knows of"
    );
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    // The claim may have begun an attempt, whose body never ran.
    assert!(matches!(
        successes(&record, "a")[..],
        [Some(true)] | [Some(true), None]
    ));
    assert_eq!((record.epoch, record.losses), (2, 0));
    assert_eq!(ledger.count("a"), 1);
    let begun = attempts(&record, "a")[0].begin_date;
    assert!(begun >= first.until, "{begun} is before {}", first.until);
}

/// F01: a worker with free places takes more of an action than that action may have at once. What does not run is handed back instead of
/// renewed, so that others run it.
async fn f01_what_waits_for_its_turn_is_not_kept_from_others(place: Place) {
    const COUNT: usize = 10;
    let ledger = Ledger::new();
    let (open, closed) = watch::channel(false);
    let client = place.builder().client().build().await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..COUNT {
        let graph = Action::new("slow").idempotent();
        handles.push(client.start("slow", graph, ()).await.unwrap());
    }
    let mut workers = Vec::new();
    for _ in 0..2 {
        let slow = gate(&ledger, "slow", &closed, quick().concurrency(1));
        let builder = place.builder().lease(LEASE).concurrency(COUNT);
        workers.push(builder.register(slow).build().await.unwrap());
    }
    workers[0].spawn();
    until_true("the first one runs one", || ledger.entries().len() == 1).await;
    workers[1].spawn();
    until_true("the second one runs one, too", || {
        ledger.count(workers[1].worker()) == 1
    })
    .await;
    tokio::time::sleep(LEASE).await;
    let mut held = 0;
    for handle in &handles {
        held += usize::from(handle.record().await.unwrap().lease.is_some());
    }
    assert_eq!(held, 2, "only what runs is held");
    open.send_replace(true);
    for handle in &handles {
        handle.outcome().await.unwrap();
    }
    assert_eq!(ledger.entries().len(), COUNT);
    checked(&client).await;
}

/// F02: an action without a timeout never ends. Other milestones run, and its lease moves exactly as long as its owner lives.
async fn f02_without_a_timeout_others_run_and_the_lease_moves_while_its_owner_lives(place: Place) {
    let ledger = Ledger::new();
    let client = place.builder().client().build().await.unwrap();
    let worker = place
        .builder()
        .lease(LEASE)
        .concurrency(2)
        .register(hangs(&ledger, "hangs", quick()))
        .register(ledger.gives("a", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let id = worker
        .start("hangs", "hangs", ())
        .await
        .unwrap()
        .id()
        .clone();
    until_true("it hangs", || ledger.count(worker.worker()) > 0).await;
    for _ in 0..20 {
        let handle = worker.start("a", "a", ()).await.unwrap();
        handle.outcome().await.unwrap();
    }
    let mut ends = Vec::new();
    for _ in 0..4 {
        ends.push(lease_of(&client, &id).await.unwrap().until);
        tokio::time::sleep(LEASE).await;
    }
    assert!(ends.is_sorted_by(|one, next| one < next), "{ends:?}");

    drop(worker);
    // What was on its way when it died may still land.
    tokio::time::sleep(LEASE / 2).await;
    let last = lease_of(&client, &id).await.unwrap();
    tokio::time::sleep(2 * LEASE).await;
    assert_eq!(lease_of(&client, &id).await.unwrap(), last);
    let heir = place
        .builder()
        .lease(LEASE)
        .register(ledger.gives("hangs", 1))
        .build()
        .await
        .unwrap();
    heir.spawn();
    let record = until(&client, &id, |record| record.state == Status::Completed).await;
    assert_eq!(successes(&record, "hangs"), [Some(true), None]);
}

/// F03: an action takes five leases, and other workers stand by: exactly one start is seen, and nobody else takes it.
async fn f03_an_action_of_five_leases_starts_once(place: Place) {
    let ledger = Ledger::new();
    let slow = |ledger: &Ledger| {
        let ledger = ledger.clone();
        Method::new("slow", move |_| {
            ledger.note("slow");
            async move {
                tokio::time::sleep(5 * LEASE).await;
                Ok::<_, ActionError>(())
            }
        })
        .options(quick())
    };
    let client = place.builder().client().build().await.unwrap();
    let mut workers = Vec::new();
    for _ in 0..3 {
        let builder = place.builder().lease(LEASE).register(slow(&ledger));
        workers.push(builder.build().await.unwrap().spawn());
    }
    let graph = Action::new("slow").idempotent();
    let handle = client.start("slow", graph, ()).await.unwrap();
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!((record.epoch, record.report.len()), (1, 1));
    assert_eq!(ledger.count("slow"), 1);
}

/// F12: a worker restarts with the same host and process id. Its identity is new: it leaves alone what the old one holds while that lives,
/// and takes it over as from a stranger when it is dead.
async fn f12_a_restarted_worker_is_another_one(place: Place) {
    let ledger = Ledger::new();
    let build = async |method: Method| {
        let builder = place.builder().lease(LEASE).worker_name("host-4711");
        let runtime = builder.register(method).build().await.unwrap();
        runtime.spawn();
        runtime
    };
    let old = build(hangs(&ledger, "a", quick())).await;
    let name = old.worker().to_owned();
    let id = old.start("a", "a", ()).await.unwrap().id().clone();
    until_true("it runs", || ledger.count(&name) > 0).await;
    let new = build(ledger.gives("a", 1)).await;
    assert_ne!(new.worker(), name);
    for worker in [new.worker(), &name] {
        assert!(worker.starts_with("host-4711-"), "{worker}");
    }
    tokio::time::sleep(3 * LEASE).await;
    let record = new.get(id.clone()).await.unwrap().unwrap();
    assert_eq!((record.epoch, ledger.count("a")), (1, 0));
    assert_eq!(record.lease.unwrap().owner, name);

    drop(old);
    let record = until(&new, &id, |record| record.state == Status::Completed).await;
    assert_eq!((record.epoch, ledger.count("a")), (2, 1));
    let [own, others] = attempts(&record, "a")[..] else {
        panic!("{record:#?}");
    };
    assert_eq!((&*own.worker, own.success), (new.worker(), Some(true)));
    assert_eq!(
        (&*others.worker, others.kind),
        (&*name, Some(AttemptKind::Abandoned))
    );
}

/// F19: a milestone is removed while a worker runs it. The worker learns it when it renews, tells the action to stop, and has its place free
/// again; nothing that it does brings the milestone back.
async fn f19_removed_while_it_runs_it_does_not_come_back(place: Place) {
    let ledger = Ledger::new();
    let noted = ledger.clone();
    let heeds = Method::new("heeds", move |call| {
        let noted = noted.clone();
        async move {
            noted.note("begins");
            call.context().cancelled().await;
            noted.note("is told to stop");
            Ok::<_, ActionError>("too late")
        }
    });
    let client = place.builder().client().build().await.unwrap();
    let worker = place
        .builder()
        .lease(LEASE)
        .concurrency(1)
        .register(heeds.options(quick()))
        .register(ledger.gives("next", 1))
        .register(ledger.gives("other", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let graph = Action::new("heeds").next(["next"]);
    let handle = worker.start("job", graph, ()).await.unwrap();
    until_true("it runs", || ledger.count("begins") > 0).await;
    assert!(client.remove(handle.id().clone()).await.unwrap());
    until_true("it is told", || ledger.count("is told to stop") > 0).await;
    // The one place is free for others.
    let other = worker.start("other", "other", ()).await.unwrap();
    other.outcome().await.unwrap();
    tokio::time::sleep(2 * LEASE).await;
    assert!(place.raw(handle.id().clone()).await.is_none());
    assert_eq!(client.count(Filter::new()).await.unwrap(), 1);
    assert_eq!(ledger.entries(), ["begins", "is told to stop", "other"]);
    assert_eq!(handle.outcome().await.unwrap_err().code(), "removed");
}

/// F19: the action ends before its worker has learned that the milestone is gone. The result is refused, and what would come next does not
/// run.
async fn f19_removed_in_front_of_its_result_it_does_not_come_back(place: Place) {
    let ledger = Ledger::new();
    let (open, closed) = watch::channel(false);
    let worker = place
        .builder()
        .register(gate(&ledger, "first", &closed, quick()))
        .register(ledger.gives("next", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let graph = Action::new("first").next(["next"]);
    let handle = worker.start("job", graph, ()).await.unwrap();
    until_true("it runs", || ledger.count(worker.worker()) > 0).await;
    assert!(worker.remove(handle.id().clone()).await.unwrap());
    open.send_replace(true);
    assert_eq!(handle.outcome().await.unwrap_err().code(), "removed");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(place.raw(handle.id().clone()).await.is_none());
    assert_eq!(ledger.count("next"), 0);
    // The same id is a new milestone, which the worker does not mix up with the old one.
    let again = worker.start("job", Action::new("next"), ()).id("again");
    again.await.unwrap().outcome().await.unwrap();
    assert_eq!(ledger.count("next"), 1);
}
