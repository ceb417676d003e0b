//! Human-readable ids: no duplicate, whoever asks and whatever fails.

use std::{
    collections::BTreeSet,
    future::IntoFuture as _,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bson::{Document, doc};
use milestone_runtime::{
    Method, Runtime,
    action::{ActionError, Context, Options},
    dynamic::Action,
    mongo::{
        DEFAULT_SEQUENCES, Sequence, SequenceBuilder, SequenceError,
        jiff::{
            Timestamp,
            tz::{TimeZone, offset},
        },
    },
};
use milestone_tests::{
    place::{Kind, Place, run_async},
    server::Scratch,
};
use mongodb::{Client, Collection, Database, IndexModel, options::IndexOptions};

/// A calendar that a test turns over.
#[derive(Clone)]
struct Day(Arc<Mutex<String>>);

impl Day {
    fn new(day: &str) -> Self {
        Self(Arc::new(Mutex::new(day.to_owned())))
    }

    fn is(&self, day: &str) {
        day.clone_into(&mut self.0.lock().expect("a day"));
    }

    fn sequence(&self, name: &str) -> SequenceBuilder {
        let day = self.clone();
        Sequence::new(name, move |_| day.0.lock().expect("a day").clone())
    }
}

async fn take(sequence: &Sequence, n: u32) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..n {
        ids.push(sequence.next().await.expect("an id"));
    }
    ids
}

fn counters(database: &Database) -> Collection<Document> {
    database.collection(DEFAULT_SEQUENCES)
}

/// Many tasks ask at once, each for as many ids one by one; gives all of them.
async fn asked_by_many(sequence: &Sequence, tasks: usize, each: u32) -> Vec<String> {
    let asked = (0..tasks).map(|_| {
        let sequence = sequence.clone();
        tokio::spawn(async move { take(&sequence, each).await })
    });
    let asked = futures_util::future::join_all(asked).await;
    asked
        .into_iter()
        .flat_map(|ids| ids.expect("no panic"))
        .collect()
}

fn expected(prefix: &str, numbers: std::ops::RangeInclusive<u32>) -> BTreeSet<String> {
    numbers
        .map(|number| format!("{prefix}-{number:04}"))
        .collect()
}

/// All of them, each once.
fn without_gap_or_duplicate(ids: &[String], prefix: &str) {
    let last = u32::try_from(ids.len()).expect("not that many");
    let seen: BTreeSet<String> = ids.iter().cloned().collect();
    assert_eq!(seen.len(), ids.len(), "an id was given twice");
    assert_eq!(seen, expected(prefix, 1..=last));
}

#[test]
fn s29_numbers_begin_at_1_each_day_and_old_days_are_purged_in_one_call() {
    run_async(async {
        let scratch = Scratch::new().await;
        let database = scratch.database();
        let day = Day::new("140625");
        let orders = day.sequence("orders").on(&database).expect("a sequence");
        let ids = take(&orders, 4).await;
        assert_eq!(
            ids,
            ["140625-0001", "140625-0002", "140625-0003", "140625-0004"]
        );
        let stored = counters(&database)
            .find_one(doc! { "_id": "orders/140625" })
            .await;
        let stored = stored.expect("it is read").expect("it is there");
        assert_eq!(stored, doc! { "_id": "orders/140625", "last": 4_i64 });

        day.is("140626");
        assert_eq!(take(&orders, 2).await, ["140626-0001", "140626-0002"]);
        day.is("150101");
        take(&orders, 1).await;
        // Neighbours, whose counters stand before, between and behind them.
        for name in ["order", "orders2", "orders.x", "ORDERS"] {
            let day = Day::new("140625");
            let neighbour = day.sequence(name).on(&database).expect("a sequence");
            take(&neighbour, 1).await;
        }
        assert_eq!(orders.purge_before("150000").await.expect("purged"), 2);
        assert_eq!(orders.purge_before("150000").await.expect("purged"), 0);
        let left = counters(&database).count_documents(doc! {}).await;
        assert_eq!(left.expect("a count"), 5);
        assert_eq!(take(&orders, 1).await, ["150101-0002"]);
        // The present period cannot be purged: its ids would come again.
        assert_eq!(orders.purge_before("999999").await.expect("purged"), 0);
        assert_eq!(take(&orders, 1).await, ["150101-0003"]);
    });
}

#[test]
fn s29_sixty_four_tasks_ask_at_once_on_an_empty_collection() {
    run_async(async {
        for _ in 0..5 {
            let scratch = Scratch::new().await;
            let day = Day::new("140625");
            let orders = day.sequence("orders").on(&scratch.database());
            let ids = asked_by_many(&orders.expect("a sequence"), 64, 1).await;
            assert_eq!(ids.len(), 64);
            without_gap_or_duplicate(&ids, "140625");
        }
    });
}

#[test]
fn s29_sixty_four_tasks_ask_for_a_hundred_each() {
    run_async(async {
        let scratch = Scratch::new().await;
        let day = Day::new("140625");
        let orders = day.sequence("orders").on(&scratch.database());
        let ids = asked_by_many(&orders.expect("a sequence"), 64, 100).await;
        assert_eq!(ids.len(), 6_400);
        without_gap_or_duplicate(&ids, "140625");
    });
}

#[test]
fn ids_that_are_drawn_together_follow_each_other() {
    run_async(async {
        let scratch = Scratch::new().await;
        let day = Day::new("140625");
        let orders = day
            .sequence("orders")
            .on(&scratch.database())
            .expect("a sequence");
        assert_eq!(orders.next_n(0).await.expect("none").len(), 0);
        assert_eq!(take(&orders, 1).await, ["140625-0001"]);
        let blocks = (1..=20).map(|n| {
            let orders = orders.clone();
            async move { orders.next_n(n).await.expect("ids").collect::<Vec<_>>() }
        });
        let blocks = futures_util::future::join_all(blocks).await;
        let mut all = vec!["140625-0001".to_owned()];
        for (n, block) in (1..).zip(blocks) {
            assert_eq!(block.len(), n);
            let numbers: Vec<u32> = block.iter().map(|id| id[7..].parse().unwrap()).collect();
            assert!(
                numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
                "{block:?}"
            );
            all.extend(block);
        }
        without_gap_or_duplicate(&all, "140625");
    });
}

/// The day of the server's clock, as people of a zone see it.
async fn today(client: &Client, zone: &TimeZone) -> String {
    let admin = client.database("admin");
    let hello = admin.run_command(doc! { "hello": 1 }).await.expect("hello");
    let now = hello.get_datetime("localTime").expect("a time");
    let now = Timestamp::from_millisecond(now.timestamp_millis()).expect("a time");
    now.to_zoned(zone.clone()).strftime("%y%m%d").to_string()
}

#[test]
fn days_and_months_are_those_of_the_server_in_the_zone() {
    run_async(async {
        let scratch = Scratch::new().await;
        let database = scratch.database();
        // Between these zones there are 26 hours, so it is never the same day in both.
        let (west, east) = (TimeZone::fixed(offset(-12)), TimeZone::fixed(offset(14)));
        for (name, zone) in [("west", &west), ("east", &east)] {
            let daily = Sequence::daily(name)
                .zone(zone.clone())
                .width(6)
                .on(&database);
            let daily = daily.expect("a sequence");
            let before = today(scratch.client(), zone).await;
            let id = daily.next().await.expect("an id");
            let after = today(scratch.client(), zone).await;
            let accepted = [&before, &after].map(|day| format!("{day}-000001"));
            assert!(accepted.contains(&id), "{id} is none of {accepted:?}");

            let monthly = Sequence::monthly(format!("{name} months")).zone(zone.clone());
            let monthly = monthly.on(&database).expect("a sequence");
            let id = monthly.next().await.expect("an id");
            let accepted = [&before, &after].map(|day| format!("{}-0001", &day[..4]));
            assert!(accepted.contains(&id), "{id} is none of {accepted:?}");
        }
        let days: BTreeSet<_> = [
            today(scratch.client(), &west).await,
            today(scratch.client(), &east).await,
        ]
        .into();
        assert_eq!(days.len(), 2);
        let utc = Sequence::daily("utc").on(&database).expect("a sequence");
        let before = today(scratch.client(), &TimeZone::UTC).await;
        let id = utc.next().await.expect("an id");
        let after = today(scratch.client(), &TimeZone::UTC).await;
        assert!(id.starts_with(&before) || id.starts_with(&after), "{id}");
    });
}

#[test]
fn a_collection_of_ones_own_and_ids_without_a_prefix() {
    run_async(async {
        let scratch = Scratch::new().await;
        let database = scratch.database();
        let own = database.collection::<Document>("numbers");
        let customers = Sequence::new("customers", |_| "").width(0).on(&own);
        assert_eq!(take(&customers.expect("a sequence"), 2).await, ["1", "2"]);
        let stored = own.find_one(doc! { "_id": "customers/" }).await;
        assert!(stored.expect("it is read").is_some());
        assert_eq!(
            counters(&database)
                .count_documents(doc! {})
                .await
                .expect("a count"),
            0
        );
    });
}

#[test]
fn what_cannot_be_a_sequence_is_refused_with_the_reason() {
    run_async(async {
        let database = Scratch::new().await.database();
        let error = Sequence::daily("a/b").on(&database).expect_err("a name");
        let told = "`a/b` cannot be the name of a sequence: a `/` stands between the name and the period of a counter, so it cannot be in a name";
        assert_eq!(
            (error.to_string(), error.code()),
            (told.to_owned(), "sequence_name")
        );
        let error = Sequence::daily("").on(&database).expect_err("a name");
        assert_eq!(error.code(), "sequence_name");
        let error = Sequence::daily("a")
            .width(20)
            .on(&database)
            .expect_err("a width");
        assert_eq!(error.code(), "sequence_width");
    });
}

async fn fragile_client(scratch: &Scratch) -> Client {
    Client::with_options(scratch.options().await).expect("a client")
}

/// A sequence whose calls can be made to fail, and the counters as another client sees them.
async fn fragile(scratch: &Scratch) -> Sequence {
    let client = fragile_client(scratch).await;
    let day = Day::new("140625");
    day.sequence("orders")
        .on(&client.database(scratch.name()))
        .expect("a sequence")
}

/// F20: what MongoDB says when two make the counter of a period at once. It comes as an error of the write, as here in each of the tests in
/// which many ask, and of the command.
#[test]
fn f20_the_race_for_the_first_id_is_run_again() {
    run_async(async {
        let scratch = Scratch::new().await;
        let database = fragile_client(&scratch).await.database(scratch.name());
        for (name, code) in [("one", 11001), ("two", 12582)] {
            let day = Day::new(name);
            let numbers = day.sequence("numbers").on(&database);
            let numbers = numbers.expect("a sequence");
            scratch
                .fail(3, doc! { "failCommands": ["insert"], "errorCode": code })
                .await;
            assert_eq!(numbers.next().await.expect("an id"), format!("{name}-0001"));
            scratch.heal().await;
        }
        // A counter that never is there is not made for ever.
        let day = Day::new("three");
        let numbers = day.sequence("numbers").on(&database);
        scratch
            .fail(100, doc! { "failCommands": ["insert"], "errorCode": 11001 })
            .await;
        let error = numbers
            .expect("a sequence")
            .next()
            .await
            .expect_err("no id");
        assert!(error.to_string().contains("`last` is absent"), "{error}");
        scratch.heal().await;
    });
}

/// F20: a duplicate that does not go away, since it is one of another index, is told and not tried for ever.
#[test]
fn f20_another_unique_index_is_told() {
    run_async(async {
        let scratch = Scratch::new().await;
        let orders = fragile(&scratch).await;
        let unique = IndexOptions::builder().unique(true).build();
        let index = IndexModel::builder()
            .keys(doc! { "last": 1 })
            .options(unique)
            .build();
        counters(&scratch.database())
            .create_index(index)
            .await
            .expect("an index");
        let other = doc! { "_id": "other", "last": 1_i64 };
        counters(&scratch.database())
            .insert_one(other)
            .await
            .expect("a document");
        let error = orders.next().await.expect_err("no id");
        assert_eq!(error.code(), "sequence_database");
        assert!(error.to_string().contains("E11000"), "{error}");
    });
}

#[test]
fn a_lost_reply_leaves_a_gap_and_never_a_duplicate() {
    run_async(async {
        let scratch = Scratch::new().await;
        let orders = fragile(&scratch).await;
        let mut ids = take(&orders, 3).await;
        // The driver sends it once more, and then gives up.
        for lost in 1..=3 {
            let lose = doc! { "failCommands": ["findAndModify"], "closeConnection": true };
            scratch.fail(lost, lose).await;
            match orders.next().await {
                Ok(id) => ids.push(id),
                Err(error) => assert_eq!(error.code(), "sequence_database"),
            }
            scratch.heal().await;
            ids.extend(take(&orders, 3).await);
        }
        // The server takes it and does not find its majority.
        let unsure = doc! {
            "failCommands": ["findAndModify"],
            "writeConcernError": { "code": 64, "codeName": "WriteConcernFailed", "errmsg": "no majority" },
        };
        scratch.fail(1, unsure).await;
        let error = orders
            .next()
            .await
            .expect_err("an id that may be lost is not given");
        assert!(error.to_string().contains("no majority"), "{error}");
        scratch.heal().await;
        ids.extend(take(&orders, 3).await);
        let seen: BTreeSet<_> = ids.iter().collect();
        assert_eq!(seen.len(), ids.len(), "{ids:?}");
        assert!(ids.is_sorted(), "{ids:?}");
        assert_eq!(
            ids.last().map(|id| &**id),
            Some(&*format!("140625-{:04}", ids.len() + 1)),
            "one gap: {ids:?}"
        );
    });
}

#[test]
fn the_server_tells_its_time_again_only_once_a_minute() {
    run_async(async {
        let scratch = Scratch::new().await;
        let orders = fragile(&scratch).await;
        let ids = asked_by_many(&orders, 8, 1).await;
        without_gap_or_duplicate(&ids, "140625");
        // Its time is known, and is not asked for again.
        scratch
            .fail(100, doc! { "failCommands": ["hello"], "errorCode": 1 })
            .await;
        take(&orders, 3).await;
        scratch.heal().await;
    });
}

#[test]
fn a_counter_that_somebody_broke_is_told() {
    run_async(async {
        let scratch = Scratch::new().await;
        let database = scratch.database();
        let day = Day::new("140625");
        let orders = day.sequence("orders").on(&database).expect("a sequence");
        for (day_of, last) in [
            ("140625", doc! { "last": 3.5 }),
            ("140626", doc! { "last": -9_i64 }),
        ] {
            day.is(day_of);
            let mut broken = doc! { "_id": format!("orders/{day_of}") };
            broken.extend(last);
            counters(&database)
                .insert_one(broken)
                .await
                .expect("a document");
            let error = orders.next().await.expect_err("no id");
            assert!(matches!(error, SequenceError::Counter { .. }), "{error}");
        }
        let error = orders.next().await.expect_err("no id");
        let told = format!(
            "the counter `orders/140626` in `{}.{DEFAULT_SEQUENCES}` cannot be counted on: `last` is -7, not a whole number of 64 bits from 1 on",
            scratch.name()
        );
        assert_eq!(error.to_string(), told);
    });
}

/// What an attempt was given: two calls at once, and one for something else.
async fn three(cx: &Context, sequence: &Sequence) -> Result<[String; 3], SequenceError> {
    let (one, same, other) = futures_util::join!(
        cx.next_id(sequence).into_future(),
        cx.next_id(sequence).into_future(),
        cx.next_id(sequence).label("other").into_future(),
    );
    Ok([one?, same?, other?])
}

fn witnesses(place: &Place) -> Collection<Document> {
    let database = place.scratch().expect("MongoDB").database();
    database.collection("_milestones_.witnesses")
}

#[test]
fn s29_an_action_gets_the_same_id_in_each_attempt() {
    run_async(async {
        let place = Place::new(Kind::MongoDb).await;
        let database = place.scratch().expect("MongoDB").database();
        let day = Day::new("140625");
        let orders = day.sequence("orders").on(&database).expect("a sequence");
        let given = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&given);
        let (drawn, turned) = (orders.clone(), day.clone());
        let number = Method::new("number", move |call| {
            let (orders, day, seen) = (drawn.clone(), turned.clone(), Arc::clone(&seen));
            async move {
                let ids = three(call.context(), &orders)
                    .await
                    .map_err(ActionError::new)?;
                seen.lock().unwrap().push(ids.clone());
                // A later day does not make it another number.
                day.is("140626");
                if call.context().attempt() < 3 {
                    return Err(ActionError::new("not yet"));
                }
                Ok(ids.to_vec())
            }
        });
        let number = number.options(Options::idempotent());
        let runtime = place
            .builder()
            .register(number)
            .clock_skew(Duration::from_secs(1));
        let runtime = runtime.build().await.expect("a runtime");
        runtime.spawn();
        for id in ["first", "second"] {
            let start = runtime
                .start("Order", Action::new("number").idempotent(), ())
                .id(id);
            start
                .await
                .expect("it is stored")
                .outcome()
                .await
                .expect("it completes");
        }
        let given = std::mem::take(&mut *given.lock().unwrap());
        let [first, second] = [&given[..3], &given[3..]];
        assert_eq!(given.len(), 6);
        for attempts in [first, second] {
            assert!(attempts.iter().all(|ids| *ids == attempts[0]), "{given:?}");
            let [one, same, other] = &attempts[0];
            assert!(one == same && one != other, "{given:?}");
        }
        assert!(
            first[0][0] != second[0][0] && first[0][2] != second[0][2],
            "{given:?}"
        );
        assert!(
            second[0].iter().all(|id| id.starts_with("140626-")),
            "{given:?}"
        );

        // What was noted goes when it is of no more use.
        let second = doc! { "_id.milestone": "second" };
        let noted = witnesses(&place).count_documents(second).await;
        assert_eq!(noted.expect("a count"), 2);
        let began = Instant::now();
        while witnesses(&place)
            .count_documents(doc! {})
            .await
            .expect("a count")
            > 0
        {
            assert!(began.elapsed() < Duration::from_secs(40), "the notes stay");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// What was noted for a milestone that was removed is nothing to another one that was started with its id.
#[test]
fn a_milestone_id_that_is_used_again_gets_other_ids() {
    run_async(async {
        let place = Place::new(Kind::MongoDb).await;
        let database = place.scratch().expect("MongoDB").database();
        let orders = Sequence::daily("orders").on(&database).expect("a sequence");
        let number = Method::new("number", move |call| {
            call.context().next_id(&orders).into_future()
        });
        let runtime = place.builder().register(number).build().await;
        let runtime = runtime.expect("a runtime");
        runtime.spawn();
        let mut given = BTreeSet::new();
        for _ in 0..2 {
            let start = runtime.start("Order", "number", ()).id("order-7");
            let record = start.await.expect("it is stored").ended().await;
            let record = record.expect("it ends");
            let number = milestone_tests::look::action(&record, "number")
                .output
                .clone();
            given.insert(number.expect("an id").to_string());
            assert!(runtime.remove("order-7").await.expect("an answer"));
        }
        assert_eq!(given.len(), 2, "{given:?}");
    });
}

#[test]
fn an_id_for_an_action_needs_milestones_in_mongodb() {
    run_async(async {
        let scratch = Scratch::new().await;
        let orders = Sequence::daily("orders")
            .on(&scratch.database())
            .expect("a sequence");
        let number = Method::new("number", move |call| {
            call.context().next_id(&orders).into_future()
        });
        let runtime = Runtime::builder("memory:")
            .register(number)
            .build()
            .await
            .expect("a runtime");
        runtime.spawn();
        let start = runtime
            .start("Order", "number", ())
            .await
            .expect("it is stored");
        let error = start.outcome().await.expect_err("no id").to_string();
        let told = "the sequence `orders` gives no id, since it cannot be noted for the next attempt: the milestones are not in MongoDB";
        assert!(error.ends_with(told), "{error}");
    });
}
