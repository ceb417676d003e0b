//! Workers with nothing to do.

use std::time::{Duration, Instant};

use milestone_runtime::dynamic::Action;
use milestone_tests::{
    commands::{Command, Commands},
    ledger::Ledger,
    look::until_true,
    place::{Kind, Place, bare, run, run_async},
    server::Scratch,
};
use rusqlite::Connection;

const POLL: Duration = Duration::from_millis(200);

const IDLE: Duration = Duration::from_secs(6);

/// How many looks there may be in a time: the shortest wait of an idle worker is nine tenths of the poll period.
fn most_looks(time: Duration) -> usize {
    usize::try_from(time.as_millis() / POLL.mul_f64(0.9).as_millis()).unwrap() + 2
}

/// F26: after some work a worker has nothing to do. Its looks come quickly at first and then once a poll period, not all after the same
/// time; it writes nothing, but that it lives, once a minute; and nothing else that it asks of the server comes to one a second.
#[test]
fn f26_no_writes_and_at_most_one_query_a_poll_on_mongodb() {
    run_async(async {
        let scratch = Scratch::new().await;
        let commands = Commands::new();
        let store = commands.store(scratch.options().await, scratch.name());
        let ledger = Ledger::new();
        let worker = bare("")
            .store(store)
            .poll(POLL)
            .register(ledger.gives("a", 1));
        let worker = worker.build().await.unwrap();
        worker.spawn();
        let place =
            milestone_tests::place::mongodb_uri(&milestone_tests::server::uri(), scratch.name());
        let client = bare(place).client().build().await.unwrap();
        until_true("hints come", || worker.metrics().hints > 0).await;
        tokio::time::sleep(3 * POLL).await;
        commands.take();
        let graph = Action::new("a").idempotent();
        let handle = client.start("a", graph, ()).await.unwrap();
        handle.outcome().await.unwrap();
        tokio::time::sleep(3 * POLL).await;
        let looks: Vec<Instant> = commands
            .take()
            .into_iter()
            .filter(Command::looks_for_work)
            .map(|look| look.at)
            .collect();
        let quickest = looks.windows(2).map(|two| two[1] - two[0]).min();
        assert!(
            quickest.unwrap() < POLL / 2,
            "after work it looks soon: {looks:?}"
        );

        let began = Instant::now();
        tokio::time::sleep(IDLE).await;
        let sent = commands.take();
        let took = began.elapsed();
        let (looks, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(Command::looks_for_work);
        println!(
            "idle for {took:?}: {} looks, {} other commands",
            looks.len(),
            others.len()
        );
        assert!(
            (5..=most_looks(took)).contains(&looks.len()),
            "{}",
            looks.len()
        );
        let waits: Vec<Duration> = looks.windows(2).map(|two| two[1].at - two[0].at).collect();
        let (shortest, longest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*shortest >= POLL.mul_f64(0.85), "{waits:?}");
        assert!(
            *longest > *shortest + Duration::from_millis(2),
            "jitter: {waits:?}"
        );
        let writes = others.iter().filter(|command| command.writes());
        let writes: Vec<_> = writes.map(|w| &*w.collection).collect();
        assert!(
            writes.iter().all(|name| name.ends_with(".workers")),
            "{writes:?}"
        );
        assert!(writes.len() <= 1, "{writes:?}");
        let names: Vec<_> = others.iter().map(|command| &*command.name).collect();
        assert!((names.len() as u64) < IDLE.as_secs(), "{names:?}");
    });
}

/// F26: the same on SQLite, where others see each write by the version of the data, and the runtime counts its looks.
#[test]
fn f26_no_writes_and_at_most_one_query_a_poll_on_sqlite() {
    run(Kind::Sqlite, |place: Place| async move {
        let ledger = Ledger::new();
        let builder = place.builder().poll(POLL);
        let worker = builder.register(ledger.gives("a", 1)).build().await;
        let worker = worker.unwrap();
        worker.spawn();
        let handle = worker.start("a", "a", ()).await.unwrap();
        handle.outcome().await.unwrap();
        tokio::time::sleep(3 * POLL).await;
        let uri = place.uri();
        let connection = Connection::open(uri.strip_prefix("sqlite:").unwrap()).unwrap();
        let version = || -> i64 {
            connection
                .pragma_query_value(None, "data_version", |row| row.get(0))
                .unwrap()
        };
        let before = (version(), worker.metrics());
        let began = Instant::now();
        tokio::time::sleep(IDLE).await;
        let (after, took) = (worker.metrics(), began.elapsed());
        assert_eq!(version(), before.0, "somebody has written");
        let looks = usize::try_from(after.claims - before.1.claims).unwrap();
        println!("idle for {took:?}: {looks} looks");
        assert!((5..=most_looks(took)).contains(&looks), "{looks}");
        assert_eq!(after.hints, before.1.hints);
    });
}

/// F26: a worker's own writes do not make it look for more: a hundred milestones, one after another, which it starts and runs itself.
#[test]
fn f26_own_writes_cause_no_looks() {
    run_async(async {
        for kind in [Kind::Sqlite, Kind::MongoDb] {
            let place = Place::new(kind).await;
            let ledger = Ledger::new();
            // None is due to a poll.
            let builder = place.builder().poll(Duration::from_mins(10));
            let worker = builder.register(ledger.gives("a", 1)).build().await;
            let worker = worker.unwrap();
            worker.spawn();
            until_true("it looks", || worker.metrics().claims > 0).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let (before, began) = (worker.metrics(), Instant::now());
            for _ in 0..100 {
                let handle = worker.start("a", "a", ()).await.unwrap();
                handle.outcome().await.unwrap();
            }
            let took = began.elapsed();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let after = worker.metrics();
            let (looks, hints) = (after.claims - before.claims, after.hints - before.hints);
            println!("on {kind:?} 100 milestones within {took:?}: {hints} hints, {looks} looks");
            // SQLite does not tell what has changed, so there are some, at a bounded rate.
            let most = if kind == Kind::MongoDb {
                0
            } else {
                5 + u64::try_from(took.as_millis()).unwrap() / 40
            };
            assert!(looks <= most, "{looks} looks in {took:?}");
        }
    });
}
