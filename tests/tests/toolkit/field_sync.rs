//! Copies of a field: in sync in the end, whatever happens on the way.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::{Bson, Document, doc, oid::ObjectId};
use futures_util::TryStreamExt as _;
use milestone_runtime::{
    Filter, Page, Runtime, RuntimeBuilder,
    action::ActionError,
    core::record::Status,
    mongo::{FieldSync, FieldSyncError},
};
use milestone_tests::{
    place::{Kind, Place, run_async},
    renaming::{Blog, SYNC, User},
};
use mongodb::Client;
use tokio::sync::Notify;

struct Bench {
    place: Place,
    blog: Blog,
}

impl Bench {
    async fn new() -> Self {
        let place = Place::new(Kind::MongoDb).await;
        let blog = Blog::new(&place.scratch().expect("MongoDB").database());
        Self { place, blog }
    }

    fn names(&self) -> FieldSync {
        self.blog.names(async |_| ())
    }

    fn builder(&self, names: &FieldSync) -> RuntimeBuilder {
        self.place
            .builder()
            .lease(Duration::from_secs(1))
            .field_sync(names)
    }

    async fn worker(&self, names: &FieldSync) -> Runtime {
        let runtime = self.builder(names).build().await.expect("a runtime");
        runtime.spawn();
        runtime
    }

    async fn milestones(&self, state: Status) -> u64 {
        let client = self
            .place
            .builder()
            .client()
            .build()
            .await
            .expect("a client");
        client
            .count(Filter::new().state(state))
            .await
            .expect("a count")
    }

    async fn in_sync(&self, id: &str, name: &str) {
        self.blog.unmarked(id).await;
        assert_eq!(self.blog.user(id).await.get_str("name").ok(), Some(name));
        assert_eq!(self.blog.others(id, name).await, 0);
    }
}

fn renamed(name: &str) -> Document {
    doc! { "$set": { "name": name } }
}

#[test]
fn a_change_and_its_mark_are_one_write_and_the_copies_follow() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        bench.blog.write("bob", 5).await;
        let names = bench.names();
        let runtime = bench.builder(&names).build().await.expect("a runtime");
        let fan_out = names
            .update(&runtime, "ann", renamed("Ann B."))
            .await
            .expect("it is updated");
        // Nobody works yet.
        let ann = bench.blog.user("ann").await;
        assert_eq!(ann.get_str("name").ok(), Some("Ann B."));
        let mark = ann
            .get_document("syncing")
            .and_then(|marks| marks.get_document(SYNC))
            .expect("it is marked");
        let id = mark.get_object_id("mark").expect("a mark");
        assert!(mark.get_datetime("at").is_ok(), "{mark}");
        assert_eq!(fan_out.id(), &format!("user-name/ann/{id}").into());
        runtime.spawn();
        fan_out.outcome().await.expect("it completes");
        bench.in_sync("ann", "Ann B.").await;
        bench.in_sync("bob", "bob").await;
    });
}

#[test]
fn what_cannot_be_updated_starts_nothing() {
    run_async(async {
        let bench = Bench::new().await;
        let names = bench.names();
        let runtime = bench.worker(&names).await;
        let error = names
            .update(&runtime, "ann", renamed("Ann B."))
            .await
            .expect_err("nobody");
        assert!(matches!(error, FieldSyncError::NotFound { .. }), "{error}");
        let database = bench.place.scratch().expect("MongoDB").name().to_owned();
        let told = format!(
            "there is no document with the `_id` \"ann\" in `{database}.users`, so nothing was updated"
        );
        assert_eq!(error.to_string(), told);
        bench.blog.write("ann", 1).await;
        let error = names
            .update(&runtime, "ann", doc! { "name": "Ann B." })
            .await
            .expect_err("unfit");
        assert_eq!(error.code(), "field_sync_unfit");
        let error = names
            .update(&runtime, "ann", doc! { "$no": { "name": "Ann B." } })
            .await;
        assert_eq!(error.expect_err("refused").code(), "field_sync_update");
        assert!(!bench.blog.is_marked("ann").await);
        assert_eq!(runtime.count(Filter::new()).await.expect("a count"), 0);
    });
}

/// An `_id` that comes from a JSON text may be anything; one that finds some other document changes none.
#[test]
fn an_id_that_is_an_operator_changes_nobody() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 1).await;
        let names = bench.names();
        let runtime = bench.worker(&names).await;
        let [pattern, options] =
            ["a", ""].map(|text| bson::raw::CString::try_from(text).expect("no NUL"));
        let ids: [Bson; 4] = [
            doc! { "$gt": "" }.into(),
            doc! { "$ne": Bson::Null }.into(),
            bson::Regex { pattern, options }.into(),
            vec!["ann"].into(),
        ];
        let before = bench.blog.user("ann").await;
        for id in ids {
            let error = names
                .update(&runtime, id, renamed("Eve"))
                .await
                .expect_err("it is refused");
            assert_eq!(error.code(), "field_sync_id", "{error}");
        }
        assert_eq!(bench.blog.user("ann").await, before);
        assert_eq!(runtime.count(Filter::new()).await.expect("a count"), 0);
    });
}

#[test]
fn two_of_one_name_and_names_that_cannot_be_are_refused() {
    run_async(async {
        let bench = Bench::new().await;
        let names = bench.names();
        let twice = bench
            .builder(&names)
            .field_sync(&names)
            .build()
            .await
            .expect_err("twice");
        assert_eq!(twice.code(), "field_sync_twice");
        let wrong = FieldSync::new("a.b", &bench.blog.users, async |_: User| {
            Ok::<_, ActionError>(())
        });
        let error = bench.builder(&wrong).build().await.expect_err("a name");
        assert_eq!(error.code(), "field_sync_name");
    });
}

/// S30: the index on the mark has marked documents only.
#[test]
fn s30_the_index_on_the_mark_is_sparse() {
    run_async(async {
        let bench = Bench::new().await;
        bench
            .builder(&bench.names())
            .build()
            .await
            .expect("a runtime");
        let indexes = bench.blog.users.list_indexes().await.expect("indexes");
        let indexes: Vec<_> = indexes.try_collect().await.expect("indexes");
        let index = indexes
            .iter()
            .find(|index| index.keys == doc! { "syncing.user-name.at": 1 });
        let options = index
            .and_then(|index| index.options.clone())
            .expect("it is there");
        assert_eq!(options.sparse, Some(true));
        // Made again, by another worker or after a restart, it is the same.
        bench
            .builder(&bench.names())
            .build()
            .await
            .expect("a runtime");
    });
}

/// A process that renames `ann` to `Ann B.`.
fn renaming(place: &Place) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rename_worker"))
        .args([&place.uri(), "Ann B."])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

fn kill(mut process: Child) {
    process.kill().expect("it is killed");
    process.wait().expect("it has ended");
}

#[test]
fn s30_killed_between_the_mark_and_the_start_and_the_sweep_finishes_it() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let scratch = bench.place.scratch().expect("MongoDB");
        // No milestone reaches the database.
        scratch
            .fail(
                1_000,
                doc! { "failCommands": ["insert"], "closeConnection": true },
            )
            .await;
        let process = renaming(&bench.place);
        while !bench.blog.is_marked("ann").await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        kill(process);
        scratch.heal().await;
        assert_eq!(bench.milestones(Status::Pending).await, 0);
        assert_eq!(bench.blog.others("ann", "Ann B.").await, 5);

        let (every, age) = (Duration::from_millis(100), Duration::from_millis(300));
        let names = bench.names().every(every).older_than(age);
        let runtime = bench.worker(&names).await;
        bench.in_sync("ann", "Ann B.").await;
        assert_eq!(runtime.count(Filter::new()).await.expect("a count"), 1);
    });
}

#[test]
fn s30_killed_in_the_middle_of_the_fan_out_and_another_worker_finishes_it() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let mut process = renaming(&bench.place);
        let output = process.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says how far it is");
        kill(process);
        assert_eq!(line, "copying\n");
        assert_eq!(
            bench.blog.others("ann", "Ann B.").await,
            3,
            "it was in the middle"
        );
        assert!(bench.blog.is_marked("ann").await);
        let names = bench.names();
        let runtime = bench.worker(&names).await;
        // Its fan-out is somebody's, so a sweep starts no other.
        let early = names.clone().older_than(Duration::ZERO);
        assert_eq!(early.sweep(&runtime).await.expect("a sweep"), 0);
        bench.in_sync("ann", "Ann B.").await;
    });
}

/// A fan-out that has read the old name goes on slowly. The second one waits for it, and nobody takes the copies for new before.
#[test]
fn s30_a_second_rename_during_the_fan_out_is_not_lost() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let [reached, go] = [(), ()].map(|()| Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&reached), Arc::clone(&go));
        let names = bench.blog.names(move |user| {
            let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
            async move {
                if user.name == "first" {
                    tell.notify_one();
                    wait.notified().await;
                }
            }
        });
        let runtime = bench.worker(&names).await;
        let first = names
            .update(&runtime, "ann", renamed("first"))
            .await
            .expect("it is updated");
        reached.notified().await;
        let second = names
            .update(&runtime, "ann", renamed("second"))
            .await
            .expect("it is updated");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(bench.blog.is_marked("ann").await);
        assert_eq!(
            bench.blog.others("ann", "second").await,
            5,
            "it waits for the first one"
        );
        // Now the first one writes what is old.
        go.notify_one();
        first.outcome().await.expect("it completes");
        second.outcome().await.expect("it completes");
        bench.in_sync("ann", "second").await;
    });
}

/// Waiting for an older fan-out is no failure, so one error of the function after it is repeated soon.
#[test]
fn waiting_for_ones_turn_is_no_failure() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let [reached, go] = [(), ()].map(|()| Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&reached), Arc::clone(&go));
        let (blog, failed) = (bench.blog.clone(), Arc::new(AtomicUsize::new(0)));
        let names = FieldSync::new(SYNC, &bench.blog.users, move |user: User| {
            let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
            let (blog, failed) = (blog.clone(), Arc::clone(&failed));
            async move {
                if user.name == "first" {
                    tell.notify_one();
                    wait.notified().await;
                } else if failed.fetch_add(1, Ordering::Relaxed) == 0 {
                    return Err(ActionError::new("it passes"));
                }
                let name = doc! { "$set": { "userName": user.name } };
                blog.comments
                    .update_many(doc! { "user": user.id }, name)
                    .await?;
                Ok(())
            }
        });
        let runtime = bench.worker(&names).await;
        let first = names
            .update(&runtime, "ann", renamed("first"))
            .await
            .expect("it is updated");
        reached.notified().await;
        let second = names
            .update(&runtime, "ann", renamed("second"))
            .await
            .expect("it is updated");
        // Longer than the lease, which is renewed.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let waiting = second
            .record()
            .await
            .expect("it is there")
            .actions
            .remove(0);
        assert_eq!((waiting.attempts, waiting.failures), (1, 0));
        go.notify_one();
        first.outcome().await.expect("it completes");
        second.outcome().await.expect("it completes");
        let over = second
            .record()
            .await
            .expect("it is there")
            .actions
            .remove(0);
        assert_eq!(over.attempts, 2, "one has failed");
        bench.in_sync("ann", "second").await;
    });
}

/// One that copied and whose milestone somebody has removed is not waited for.
#[test]
fn a_fan_out_that_never_goes_on_is_not_waited_for() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let mut process = renaming(&bench.place);
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut String::new())
            .expect("it says how far it is");
        kill(process);
        let names = bench.names();
        let runtime = bench.builder(&names).build().await.expect("a runtime");
        let left = runtime
            .list(Filter::new(), Page::default())
            .await
            .expect("a list")
            .records;
        for record in left {
            assert!(runtime.remove(record.id).await.expect("it is removed"));
        }
        let fan_out = names
            .update(&runtime, "ann", renamed("second"))
            .await
            .expect("it is updated");
        runtime.spawn();
        fan_out.outcome().await.expect("it completes");
        bench.in_sync("ann", "second").await;
    });
}

/// A worker that was given up while it copied finds out, and the document is marked anew: the sweep repairs what it has written too late.
#[test]
fn who_was_given_up_and_wrote_too_late_marks_the_document_anew() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let [reached, go] = [(), ()].map(|()| Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&reached), Arc::clone(&go));
        let names = bench.blog.names(move |user| {
            let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
            async move {
                if user.name == "first" {
                    tell.notify_one();
                    wait.notified().await;
                }
            }
        });
        let names = names
            .every(Duration::from_millis(100))
            .older_than(Duration::from_millis(100));
        let runtime = bench.worker(&names).await;
        names
            .update(&runtime, "ann", renamed("first"))
            .await
            .expect("it is updated");
        reached.notified().await;
        // As its successor does, which finds a newer mark.
        let users = bench.blog.users.clone_with_type::<Document>();
        let given_up = doc! { "$set": { "name": "second" }, "$unset": { "syncing.user-name": 1 } };
        users
            .update_one(doc! { "_id": "ann" }, given_up)
            .await
            .expect("a user");
        go.notify_one();
        let began = std::time::Instant::now();
        while bench.blog.others("ann", "second").await > 0 || bench.blog.is_marked("ann").await {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "it is not repaired"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn s30_twenty_renames_while_two_workers_fan_out() {
    run_async(async {
        let bench = Arc::new(Bench::new().await);
        bench.blog.write("ann", 10).await;
        let names = bench
            .blog
            .names(|_| tokio::time::sleep(Duration::from_millis(fastrand::u64(0..30))));
        let names = names
            .every(Duration::from_millis(100))
            .older_than(Duration::from_millis(100));
        let [one, other] = [bench.worker(&names).await, bench.worker(&names).await];
        let tasks = (0..4).map(|task| {
            let (names, runtime) = (
                names.clone(),
                if task % 2 == 0 {
                    one.clone()
                } else {
                    other.clone()
                },
            );
            tokio::spawn(async move {
                let mut fan_outs = Vec::new();
                for number in 0..5 {
                    let name = format!("ann {task}.{number}");
                    fan_outs.push(
                        names
                            .update(&runtime, "ann", renamed(&name))
                            .await
                            .expect("it is updated"),
                    );
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..20))).await;
                }
                for fan_out in fan_outs {
                    fan_out.outcome().await.expect("it completes");
                }
            })
        });
        for task in futures_util::future::join_all(tasks).await {
            task.expect("no panic");
        }
        let name = bench
            .blog
            .user("ann")
            .await
            .get_str("name")
            .expect("a name")
            .to_owned();
        bench.in_sync("ann", &name).await;
        assert_eq!(
            bench.milestones(Status::Completed).await,
            one.count(Filter::new()).await.expect("a count")
        );
    });
}

#[test]
fn a_fan_out_that_has_failed_is_begun_anew_by_the_sweep() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let (blog, calls) = (bench.blog.clone(), Arc::new(AtomicUsize::new(0)));
        let names = FieldSync::new(SYNC, &bench.blog.users, move |user: User| {
            let (blog, call) = (blog.clone(), calls.fetch_add(1, Ordering::Relaxed));
            async move {
                if call == 0 {
                    return Err(ActionError::fatal("not today"));
                }
                let name = doc! { "$set": { "userName": user.name } };
                blog.comments
                    .update_many(doc! { "user": user.id }, name)
                    .await?;
                Ok(())
            }
        });
        let names = names.older_than(Duration::ZERO);
        let runtime = bench.worker(&names).await;
        let fan_out = names
            .update(&runtime, "ann", renamed("Ann B."))
            .await
            .expect("it is updated");
        fan_out.outcome().await.expect_err("it fails");
        assert!(bench.blog.is_marked("ann").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(names.sweep(&runtime).await.expect("a sweep"), 1);
        bench.in_sync("ann", "Ann B.").await;
        assert_eq!(names.sweep(&runtime).await.expect("a sweep"), 0);
        assert_eq!(fan_out.status().await.expect("it is there"), Status::Failed);
    });
}

#[test]
fn an_update_whose_fan_out_cannot_be_started_says_so_and_the_sweep_does_it() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let names = bench.names().older_than(Duration::ZERO);
        let builder = bench
            .builder(&names)
            .start_timeout(Duration::from_millis(300));
        let runtime = builder.build().await.expect("a runtime");
        let scratch = bench.place.scratch().expect("MongoDB");
        scratch
            .fail(
                1_000,
                doc! { "failCommands": ["insert"], "closeConnection": true },
            )
            .await;
        let error = names
            .update(&runtime, "ann", renamed("Ann B."))
            .await
            .expect_err("not started");
        scratch.heal().await;
        assert!(
            matches!(error, FieldSyncError::NotStarted { .. }),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with("the document \"ann\" is updated, but"),
            "{error}"
        );
        runtime.spawn();
        tokio::time::sleep(Duration::from_millis(20)).await;
        names.sweep(&runtime).await.expect("a sweep");
        bench.in_sync("ann", "Ann B.").await;
    });
}

#[test]
fn more_marks_than_a_batch_are_swept_and_young_ones_are_left() {
    run_async(async {
        let bench = Bench::new().await;
        let scratch = bench.place.scratch().expect("MongoDB");
        let users = scratch.database().collection::<Document>("users");
        let marked = |number: i32, at: bson::DateTime| {
            doc! { "_id": number.to_string(), "name": "x", "syncing": { SYNC: { "mark": ObjectId::new(), "at": at } } }
        };
        let old = bson::DateTime::from_millis(1_000);
        users
            .insert_many((0..250).map(|number| marked(number, old)))
            .await
            .expect("users");
        let later =
            bson::DateTime::from_millis(bson::DateTime::now().timestamp_millis() + 3_600_000);
        users.insert_one(marked(250, later)).await.expect("a user");
        let names = bench.names();
        let runtime = bench.builder(&names).build().await.expect("a runtime");
        assert_eq!(names.sweep(&runtime).await.expect("a sweep"), 250);
        assert_eq!(
            names.sweep(&runtime).await.expect("a sweep"),
            0,
            "they are under way"
        );
        runtime.spawn();
        for number in 0..250 {
            bench.blog.unmarked(&number.to_string()).await;
        }
        assert!(bench.blog.is_marked("250").await);
    });
}

#[test]
fn a_document_that_is_gone_needs_no_copies() {
    run_async(async {
        let bench = Bench::new().await;
        bench.blog.write("ann", 5).await;
        let names = bench.names();
        let client = Client::with_uri_str(bench.place.uri())
            .await
            .expect("a client");
        let runtime = bench.builder(&names).build().await.expect("a runtime");
        let fan_out = names
            .update(&runtime, "ann", doc! {})
            .await
            .expect("it is marked");
        let database = client.default_database().expect("it names one");
        let users = database.collection::<Document>("users");
        users
            .delete_one(doc! { "_id": "ann" })
            .await
            .expect("it is removed");
        runtime.spawn();
        fan_out.outcome().await.expect("there is nothing to do");
    });
}
