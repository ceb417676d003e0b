//! Hints that are late, that stop, that never come, or that there are none of: polling finds the work. Each test has a server of its own,
//! since it makes it fail.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bson::{Document, doc};
use milestone_runtime::{
    Runtime, RuntimeBuilder,
    core::record::Status,
    dynamic::Action,
    store::{
        Filter,
        mongodb::{DEFAULT_COLLECTION, MongoStore},
    },
};
use milestone_tests::{
    checker::checked,
    commands::{Command, Commands},
    ledger::Ledger,
    logs,
    look::until_true,
    own_server::OwnServer,
    place::{bare, mongodb_uri, run_async},
    proxy::Proxy,
};
use mongodb::{Collection, options::ClientOptions};

const DATABASE: &str = "subject";

/// How often the worker looks for work, where no hint comes.
const POLL: Duration = Duration::from_millis(500);

const COUNT: usize = 100;

/// A server, a client whose network is good, and a worker whose way to the server the test may break.
struct Bench {
    server: OwnServer,
    proxy: Proxy,
    commands: Commands,
    ledger: Ledger,
}

impl Bench {
    async fn new() -> Self {
        logs::collect();
        let server = OwnServer::start().await;
        let proxy = Proxy::to(server.address()).await;
        Self {
            server,
            proxy,
            commands: Commands::new(),
            ledger: Ledger::new(),
        }
    }

    /// A store behind the proxy, whose commands are counted.
    async fn store(&self) -> Arc<MongoStore> {
        let address = self.proxy.address();
        let uri = format!("mongodb://{address}/?directConnection=true&heartbeatFrequencyMS=500");
        let uri = mongodb_uri(&uri, DATABASE);
        let options = ClientOptions::parse(uri).await.unwrap();
        self.commands.store(options, DATABASE)
    }

    async fn builder(&self) -> RuntimeBuilder {
        let builder = bare("").store(self.store().await).poll(POLL);
        builder.register(self.ledger.gives("a", 1))
    }

    /// A worker at work, behind the proxy.
    async fn worker(&self) -> Runtime {
        let worker = self.builder().await.build().await.unwrap();
        worker.spawn();
        worker
    }

    async fn client(&self) -> Runtime {
        // Fail points are for those that are called like the database.
        let uri = mongodb_uri(&self.server.uri(), DATABASE).replace("appName=subject", "appName=x");
        bare(uri).client().build().await.unwrap()
    }

    /// From now on that command of the worker fails, each time.
    async fn fail(&self, command: &str, code: i32) {
        let data = doc! { "failCommands": [command], "errorCode": code };
        self.server.fail(DATABASE, "alwaysOn", data).await;
    }

    async fn milestones(&self) -> Collection<Document> {
        let client = self.server.client().await;
        client.database(DATABASE).collection(DEFAULT_COLLECTION)
    }

    fn streams(&self) -> usize {
        self.commands.count(Command::opens_a_stream)
    }

    /// Milestones are started by another process; all of them run.
    async fn all_run(&self, client: &Runtime) -> Duration {
        let before = self.ledger.entries().len();
        let starts = (0..COUNT).map(|_| client.start("a", "a", ()).into_future());
        for started in futures_util::future::join_all(starts).await {
            started.unwrap();
        }
        let inserted = Instant::now();
        until_true("all have run", || {
            self.ledger.entries().len() == before + COUNT
        })
        .await;
        inserted.elapsed()
    }
}

/// Waits until the ends of all are stored, too.
async fn all_have_ended(client: &Runtime) {
    while client.count(Filter::unfinished()).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How often one time is in another.
fn times(time: Duration, part: Duration) -> usize {
    usize::try_from(time.as_millis() / part.as_millis()).unwrap()
}

/// What a worker has warned of.
fn warnings(worker: &Runtime, text: &str) -> Vec<String> {
    let lines = logs::lines_with(worker.worker()).into_iter();
    lines
        .filter(|line| line.contains(" WARN ") && line.contains(text))
        .collect()
}

/// F23: the change stream falls silent, since its requests do not arrive any more, and nobody is told. What another process inserts runs
/// within the poll period.
#[test]
fn f23_a_silent_stream() {
    run_async(async {
        let bench = Bench::new().await;
        let worker = bench.worker().await;
        let client = bench.client().await;
        bench.all_run(&client).await;
        until_true("hints come", || worker.metrics().hints > 1).await;
        bench.proxy.hold("getMore");
        until_true("the stream is silent", || bench.proxy.held() > 0).await;
        // It looks as seldom as it ever does.
        tokio::time::sleep(3 * POLL).await;
        let before = worker.metrics();
        let took = bench.all_run(&client).await;
        println!("without hints, {COUNT} ran within {took:?} after they were inserted");
        assert!(took < 10 * POLL, "{took:?}");
        let after = worker.metrics();
        assert_eq!(after.hints, before.hints, "no hint has come");
        assert_eq!(after.claimed, before.claimed + COUNT as u64);
        checked(&client).await;
    });
}

/// F23: the stream is cut off. What is inserted runs within the poll period, and the stream is opened again by itself.
#[test]
fn f23_a_stream_that_is_cut_off() {
    run_async(async {
        let bench = Bench::new().await;
        let worker = bench.worker().await;
        let client = bench.client().await;
        until_true("there is a stream", || worker.metrics().hints > 0).await;
        assert!(bench.proxy.cut() > 0);
        let took = bench.all_run(&client).await;
        assert!(took < 10 * POLL, "{took:?}");
        until_true("there is another stream", || bench.streams() > 1).await;
        until_true("it is open", || worker.metrics().hints > 1).await;
        let before = worker.metrics().hints;
        bench.all_run(&client).await;
        until_true("it gives hints", || worker.metrics().hints > before).await;
        checked(&client).await;
    });
}

/// F24: a server without a replica set has no change streams. No such server is to be had here: a network stands between, in which the
/// server says of itself what such a one says. To the driver and to the store it is one, and the test sees that they ask nothing of it that
/// such a server refuses: change streams, transactions and writes that the driver may repeat. One warning, and everything works by polling.
#[test]
fn f24_a_standalone_server() {
    run_async(async {
        let bench = Bench::new().await;
        bench.proxy.pretend_standalone();
        let builder = bench.builder().await;
        let worker = builder
            .register(bench.ledger.fails_first("b", 2))
            .register(bench.ledger.fails_for_good("c"))
            .build()
            .await
            .unwrap();
        assert!(
            worker.server().contains("standalone"),
            "{}",
            worker.server()
        );
        worker.spawn();
        let client = bench.client().await;
        let took = bench.all_run(&client).await;
        assert!(took < 10 * POLL, "{took:?}");
        // Chains, retries, failures, commands and outcomes, from here and from elsewhere.
        for runtime in [&worker, &client] {
            let graph = Action::new("a").idempotent().next(["b"]);
            let handle = runtime.start("ab", graph, ()).await.unwrap();
            let outcome = handle.outcome().await.unwrap();
            assert_eq!(outcome.get_str("b").unwrap(), "b");
            let failing = runtime.start("c", "c", ()).await.unwrap();
            assert_eq!(failing.outcome().await.unwrap_err().code(), "failed");
            let waiting = runtime.start("d", "nobody-has-it", ()).await.unwrap();
            waiting.cancel("nobody needs it").await.unwrap();
            assert_eq!(waiting.outcome().await.unwrap_err().code(), "cancelled");
        }
        checked(&client).await;
        assert_eq!(worker.metrics().hints, 0);
        assert_eq!(warnings(&worker, "no hints").len(), 1);
        let refused = bench.commands.count(|command| {
            let fields = ["txnNumber", "startTransaction"];
            command.opens_a_stream() || fields.iter().any(|f| command.document.contains_key(f))
        });
        assert_eq!(refused, 0, "{:?}", bench.commands);
    });
}

/// F24: a server that says it is of a replica set refuses change streams with the error of a standalone one, as some that only look like
/// MongoDB do: the same.
#[test]
fn f24_a_server_that_refuses_change_streams() {
    run_async(async {
        let bench = Bench::new().await;
        bench.fail("aggregate", 40_573).await;
        let worker = bench.worker().await;
        let client = bench.client().await;
        let took = bench.all_run(&client).await;
        assert!(took < 10 * POLL, "{took:?}");
        until_true("it is asked again", || bench.streams() > 1).await;
        assert_eq!(warnings(&worker, "no hints").len(), 1);
        assert_eq!(worker.metrics().hints, 0);
        checked(&client).await;
    });
}

/// F25: the stream errs for ever: it cannot be opened, or it breaks at its first request for more, with an error after which the driver would
/// open it again at once. Attempts are few, the log has one warning, and the work goes on.
#[test]
fn f25_a_stream_that_errs_for_ever() {
    for (command, code) in [("aggregate", 8_000), ("getMore", 43), ("getMore", 6)] {
        run_async(async move {
            let bench = Bench::new().await;
            bench.fail(command, code).await;
            let began = Instant::now();
            let worker = bench.worker().await;
            let client = bench.client().await;
            while began.elapsed() < Duration::from_secs(6) {
                let took = bench.all_run(&client).await;
                assert!(took < 10 * POLL, "{took:?}");
                tokio::time::sleep(POLL).await;
            }
            // Waits of 1, 2 and 4 seconds, or half of that.
            let most = 4 + times(began.elapsed(), Duration::from_secs(3));
            let streams = bench.streams();
            println!(
                "{command} fails with {code}: {streams} streams in {:?}",
                began.elapsed()
            );
            assert!(
                (2..=most).contains(&streams),
                "{streams} in {:?}",
                began.elapsed()
            );
            assert_eq!(warnings(&worker, "no hints").len(), 1);
            let lines = logs::lines_with(worker.worker());
            let lines = lines.iter().filter(|line| line.contains("hints")).count();
            // Each line follows its stream, and there may have been one more since.
            let streams = bench.streams();
            assert!(lines <= streams, "{lines} lines for {streams} streams");
            checked(&client).await;
        });
    }
}

/// F25: the collection is dropped while a worker runs. What was in it is gone; the worker goes on, with few words in the log, and the
/// collection has its indexes again.
#[test]
fn f25_the_collection_is_dropped() {
    run_async(async {
        let bench = Bench::new().await;
        let worker = bench.worker().await;
        let client = bench.client().await;
        bench.all_run(&client).await;
        until_true("hints come", || worker.metrics().hints > 1).await;
        all_have_ended(&client).await;
        let milestones = bench.milestones().await;
        milestones.drop().await.unwrap();
        let took = bench.all_run(&client).await;
        assert!(took < 10 * POLL, "{took:?}");
        let began = Instant::now();
        loop {
            let mut names = milestones.list_index_names().await.unwrap();
            names.sort();
            if names == ["_id_", "milestone_expire", "milestone_next"] {
                break;
            }
            assert!(began.elapsed() < Duration::from_mins(1), "{names:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until_true("there is another stream", || bench.streams() > 1).await;
        bench.all_run(&client).await;
        all_have_ended(&client).await;
        let filter = Filter::new().state(Status::Completed);
        assert_eq!(client.count(filter).await.unwrap(), 2 * COUNT as u64);
        let lines = logs::lines_with(worker.worker());
        let loud = lines
            .iter()
            .filter(|l| l.contains(" WARN ") || l.contains(" ERROR "));
        assert!(loud.count() <= 1, "{lines:#?}");
        checked(&client).await;
    });
}
