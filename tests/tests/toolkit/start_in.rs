//! A milestone that is started in the caller's transaction is there exactly if that transaction commits.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use bson::{Document, doc};
use milestone_runtime::{
    Handle, Method, Runtime, StartError, StartInError,
    action::Options,
    core::{limits::Limits, record::Status},
    dynamic::Action,
};
use milestone_tests::{
    own_server::OwnServer,
    place::{Kind, Place, run_async},
};
use mongodb::{Client, ClientSession, Collection, error::Error, options::ClientOptions};

struct Shop {
    place: Place,
    runtime: Runtime,
    client: Client,
}

impl Shop {
    async fn new() -> Self {
        let place = Place::new(Kind::MongoDb).await;
        let ship = Method::new("ship", |call| async move {
            Ok::<_, Error>(call.parameters().clone())
        });
        let runtime = place
            .builder()
            .register(ship.options(Options::idempotent()));
        let runtime = runtime.build().await.expect("a runtime");
        let client = Client::with_uri_str(place.uri()).await.expect("a client");
        Self {
            place,
            runtime,
            client,
        }
    }

    fn orders(&self) -> Collection<Document> {
        self.client
            .default_database()
            .expect("it names one")
            .collection("orders")
    }

    async fn begin(&self) -> ClientSession {
        let mut session = self.client.start_session().await.expect("a session");
        session.start_transaction().await.expect("a transaction");
        session
    }

    async fn order(&self, id: &str, session: &mut ClientSession) {
        let order = doc! { "_id": id };
        self.orders()
            .insert_one(order)
            .session(session)
            .await
            .expect("an order");
    }

    async fn start(
        &self,
        id: &str,
        amount: i32,
        session: &mut ClientSession,
    ) -> Result<Handle<Document>, StartInError> {
        let graph = Action::new("ship").idempotent();
        let start = self
            .runtime
            .start("Shipment", graph, doc! { "amount": amount });
        start.id(id).start_in(session).await
    }

    async fn count(&self) -> (u64, u64) {
        let orders = self
            .orders()
            .count_documents(doc! {})
            .await
            .expect("a count");
        let milestones = self.runtime.count(milestone_runtime::Filter::new()).await;
        (orders, milestones.expect("a count"))
    }
}

async fn commit(session: &mut ClientSession) {
    session.commit_transaction().await.expect("it commits");
}

#[test]
fn committed_it_runs() {
    run_async(async {
        let shop = Shop::new().await;
        shop.runtime.spawn();
        let mut session = shop.begin().await;
        shop.order("o-1", &mut session).await;
        let shipment = shop
            .start("o-1", 7, &mut session)
            .await
            .expect("it is started");
        // Several polls.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(
            shop.count().await,
            (0, 0),
            "nothing is there before the commit"
        );
        commit(&mut session).await;
        let outputs = shipment.outcome().await.expect("it completes");
        assert_eq!(outputs, doc! { "ship": { "amount": 7 } });
        assert_eq!(shop.count().await, (1, 1));
    });
}

#[test]
fn aborted_it_is_not_there() {
    run_async(async {
        let shop = Shop::new().await;
        shop.runtime.spawn();
        let mut session = shop.begin().await;
        shop.order("o-1", &mut session).await;
        let shipment = shop
            .start("o-1", 7, &mut session)
            .await
            .expect("it is started");
        session.abort_transaction().await.expect("it is aborted");
        assert_eq!(shop.count().await, (0, 0));
        assert_eq!(
            shipment.status().await.expect_err("no milestone").code(),
            "removed"
        );
        // The same session and the same id, once more.
        session.start_transaction().await.expect("a transaction");
        let shipment = shop
            .start("o-1", 8, &mut session)
            .await
            .expect("it is started");
        commit(&mut session).await;
        let outputs = shipment.outcome().await.expect("it completes");
        assert_eq!(outputs, doc! { "ship": { "amount": 8 } });
    });
}

#[test]
fn an_id_that_exists_attaches_and_the_transaction_goes_on() {
    run_async(async {
        let shop = Shop::new().await;
        let graph = Action::new("ship").idempotent();
        let first = shop
            .runtime
            .start("Shipment", graph, doc! { "amount": 7 })
            .id("o-1");
        first.await.expect("it is stored");
        let mut session = shop.begin().await;
        shop.order("before", &mut session).await;
        for _ in 0..2 {
            let shipment = shop
                .start("o-1", 7, &mut session)
                .await
                .expect("it attaches");
            assert_eq!(shipment.id(), &"o-1".into());
        }
        // Also to one of the same transaction.
        shop.start("o-2", 7, &mut session)
            .await
            .expect("it is started");
        shop.start("o-2", 7, &mut session)
            .await
            .expect("it attaches");
        shop.order("after", &mut session).await;
        commit(&mut session).await;
        assert_eq!(shop.count().await, (2, 2));
    });
}

#[test]
fn a_conflict_leaves_the_transaction_usable() {
    run_async(async {
        let shop = Shop::new().await;
        let graph = Action::new("ship").idempotent();
        let first = shop
            .runtime
            .start("Shipment", graph, doc! { "amount": 7 })
            .id("o-1");
        first.await.expect("it is stored");
        let mut session = shop.begin().await;
        shop.order("before", &mut session).await;
        let error = shop
            .start("o-1", 8, &mut session)
            .await
            .expect_err("another one");
        assert!(
            matches!(error, StartInError::Start(StartError::Conflict { .. })),
            "{error}"
        );
        assert_eq!(error.code(), "conflict");
        assert!(!error.is_transient());
        shop.order("after", &mut session).await;
        commit(&mut session).await;
        assert_eq!(shop.count().await, (2, 1));
    });
}

#[test]
fn what_cannot_be_stored_leaves_the_transaction_usable() {
    run_async(async {
        let shop = Shop::new().await;
        let mut session = shop.begin().await;
        shop.order("before", &mut session).await;
        let large = "x".repeat(Limits::new().document + 1);
        let graph = || Action::new("ship").idempotent();
        let start = shop.runtime.start("Shipment", graph(), large);
        let error = start.start_in(&mut session).await.expect_err("too large");
        assert!(matches!(error, StartInError::Start(_)), "{error}");
        let timestamp = bson::Timestamp {
            time: 0,
            increment: 0,
        };
        let start = shop.runtime.start("Shipment", graph(), timestamp);
        let error = start
            .start_in(&mut session)
            .await
            .expect_err("it would be changed");
        assert_eq!(error.code(), "not_stored", "{error}");
        shop.order("after", &mut session).await;
        commit(&mut session).await;
        assert_eq!(shop.count().await, (2, 0));
    });
}

#[test]
fn two_transactions_that_start_one_id_are_a_conflict_of_which_one_wins() {
    run_async(async {
        let shop = Shop::new().await;
        let [mut one, mut other] = [shop.begin().await, shop.begin().await];
        shop.order("one", &mut one).await;
        shop.order("other", &mut other).await;
        shop.start("o-1", 7, &mut one).await.expect("it is started");
        let error = shop
            .start("o-1", 7, &mut other)
            .await
            .expect_err("a conflict");
        assert!(error.is_transient(), "{error:?}");
        let told = Error::from(error);
        assert!(told.contains_label("TransientTransactionError"), "{told:?}");
        // Its loop runs it again.
        let _ = other.abort_transaction().await;
        commit(&mut one).await;
        other.start_transaction().await.expect("a transaction");
        shop.order("other", &mut other).await;
        shop.start("o-1", 7, &mut other).await.expect("it attaches");
        commit(&mut other).await;
        assert_eq!(shop.count().await, (2, 1));
    });
}

/// The driver's own loop sees by the error that the transaction may be run again.
#[test]
fn eight_transactions_race_for_one_id_and_all_of_them_commit() {
    run_async(async {
        let shop = std::sync::Arc::new(Shop::new().await);
        shop.runtime.spawn();
        let tasks = (0..8).map(|number| {
            let shop = std::sync::Arc::clone(&shop);
            tokio::spawn(async move {
                let mut session = shop.client.start_session().await.expect("a session");
                let run = session.start_transaction().and_run(
                    (&*shop, number),
                    |session, (shop, number)| {
                        Box::pin(async move {
                            let order = doc! { "_id": *number };
                            shop.orders()
                                .insert_one(order)
                                .session(&mut *session)
                                .await?;
                            shop.start("o-1", 7, session).await?;
                            Ok(())
                        })
                    },
                );
                run.await.expect("it commits");
            })
        });
        for task in futures_util::future::join_all(tasks).await {
            task.expect("no panic");
        }
        assert_eq!(shop.count().await, (8, 1));
        let shipment = shop.runtime.handle("o-1");
        assert_eq!(
            shipment.outcome().await.expect("it completes"),
            doc! { "ship": { "amount": 7 } }
        );
    });
}

#[test]
fn a_session_that_cannot_be_used_is_told() {
    run_async(async {
        let shop = Shop::new().await;
        let mut session = shop.client.start_session().await.expect("a session");
        let error = shop
            .start("o-1", 7, &mut session)
            .await
            .expect_err("no transaction");
        assert!(matches!(error, StartInError::NoTransaction), "{error}");
        session.start_transaction().await.expect("a transaction");
        shop.order("one", &mut session).await;
        commit(&mut session).await;
        let error = shop
            .start("o-1", 7, &mut session)
            .await
            .expect_err("it is over");
        assert!(matches!(error, StartInError::NoTransaction), "{error}");
        assert_eq!(shop.count().await, (1, 0));

        let memory = Runtime::builder("memory:")
            .build()
            .await
            .expect("a runtime");
        let mut session = shop.begin().await;
        let start = memory.start("Shipment", Action::new("ship").idempotent(), ());
        let error = start
            .start_in(&mut session)
            .await
            .expect_err("not in MongoDB");
        assert!(matches!(error, StartInError::NotMongoDb { .. }), "{error}");

        let elsewhere = OwnServer::start().await;
        let options = ClientOptions::parse(elsewhere.uri())
            .await
            .expect("options");
        let client = Client::with_options(options).expect("a client");
        let mut session = client.start_session().await.expect("a session");
        session.start_transaction().await.expect("a transaction");
        let error = shop
            .start("o-1", 7, &mut session)
            .await
            .expect_err("another cluster");
        assert!(
            matches!(error, StartInError::OtherCluster { .. }),
            "{error}"
        );
    });
}

/// A caller is killed without a word; gives what is there then.
async fn killed(moment: &str) -> (Shop, (u64, u64)) {
    let shop = Shop::new().await;
    let mut caller = Command::new(env!("CARGO_BIN_EXE_outbox_caller"))
        .args([&shop.place.uri(), moment])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = caller.stdout.take().expect("it is piped");
    let mut line = String::new();
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it says how far it is");
    caller.kill().expect("it is killed");
    caller.wait().expect("it has ended");
    assert_eq!(line, "ready\n");
    let count = shop.count().await;
    (shop, count)
}

#[test]
fn a_caller_that_is_killed_before_the_commit_has_started_nothing() {
    run_async(async {
        let (shop, count) = killed("before").await;
        assert_eq!(count, (0, 0));
        shop.runtime.spawn();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shop.count().await, (0, 0));
    });
}

#[test]
fn a_caller_that_is_killed_after_the_commit_has_started_it() {
    run_async(async {
        let (shop, count) = killed("after").await;
        assert_eq!(count, (1, 1));
        let shipment = shop.runtime.handle("o-1");
        assert_eq!(
            shipment.status().await.expect("it is there"),
            Status::Pending
        );
        shop.runtime.spawn();
        assert_eq!(
            shipment.outcome().await.expect("it completes"),
            doc! { "ship": { "order": "o-1" } }
        );
    });
}

/// F20: what others store between the look and the insert is told as a conflict, and by some servers as a duplicate key. Either way the whole
/// transaction can be run again.
#[test]
fn f20_a_duplicate_key_in_a_transaction_is_transient() {
    run_async(async {
        let shop = Shop::new().await;
        let scratch = shop.place.scratch().expect("MongoDB");
        let mut session = shop.begin().await;
        let duplicate = doc! { "failCommands": ["insert"], "errorCode": 11001 };
        scratch.fail(1, duplicate).await;
        let error = shop
            .start("o-1", 7, &mut session)
            .await
            .expect_err("a duplicate");
        scratch.heal().await;
        assert!(error.is_transient(), "{error:?}");
        assert_eq!(error.code(), "start_in_transaction");
        let _ = session.abort_transaction().await;
        assert_eq!(shop.count().await, (0, 0));
    });
}
