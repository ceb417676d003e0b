//! Compensations that know whether the write was applied.

use std::time::Duration;

use bson::{Document, doc};
use milestone_runtime::{
    Method, Runtime, Status,
    action::{ActionError, Context},
    dynamic::Action,
};
use milestone_tests::{
    ledger::quick,
    look::until_true,
    place::run_async,
    proxy::Proxy,
    transfer::{marked, markers, until_clean},
};
use mongodb::Collection;

use super::bench::{Bench, ann, less, run};

/// A milestone whose second action fails, so that the first is undone; what the undo gave, as it was noted.
async fn undone(
    bench: &Bench,
    methods: impl IntoIterator<Item = Method>,
) -> (Runtime, Vec<Document>) {
    let fails = bench.action("fails", |_, _| async {
        Err::<(), _>(ActionError::fatal("it cannot be"))
    });
    let runtime = bench.worker(methods.into_iter().chain([fails])).await;
    let graph = Action::new("does").next([Action::new("fails")]);
    let handle = runtime.start("undone", graph, ()).await.unwrap();
    let record = handle.ended().await.unwrap();
    assert_eq!(record.state, Status::Undone, "{record:#?}");
    let results = bench
        .place
        .scratch()
        .unwrap()
        .database()
        .collection::<Document>("results");
    let found = results.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
    let found: Vec<Document> = futures_util::TryStreamExt::try_collect(found)
        .await
        .unwrap();
    (runtime, found)
}

/// Notes what an attempt of an undo saw; the first two fail after it.
async fn note(
    cx: &Context,
    accounts: &Collection<Document>,
    seen: impl std::fmt::Debug,
) -> Result<(), ActionError> {
    let client = accounts.client();
    let results = client
        .database(&accounts.namespace().db)
        .collection("results");
    let (attempt, seen) = (cx.attempt(), format!("{seen:?}"));
    results
        .insert_one(doc! { "_id": attempt, "seen": seen })
        .await?;
    if attempt < 3 {
        return Err(ActionError::new("again"));
    }
    Ok(())
}

fn seen(results: &[Document]) -> Vec<&str> {
    results
        .iter()
        .map(|result| result.get_str("seen").unwrap())
        .collect()
}

fn debit_back(bench: &Bench) -> Method {
    bench.action("undoes", |cx, accounts| async move {
        let undone = cx
            .once(&accounts)
            .undo()
            .update_one(ann(), less(-30))
            .await?;
        note(&cx, &accounts, undone).await
    })
}

#[test]
fn what_was_applied_is_taken_back_once() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("does", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(30)).await?;
            Ok(())
        });
        let debit = debit.options(quick().undo("undoes"));
        let (_runtime, results) = undone(&bench, [debit, debit_back(&bench)]).await;
        assert_eq!(seen(&results), ["Now", "Before", "Before"]);
        assert_eq!(bench.balance("ann").await, 100);
        assert_eq!(markers(&bench.accounts, "ann").await.len(), 2);
        until_clean(&bench.accounts).await;
        assert_eq!(bench.balance("ann").await, 100);
    });
}

/// The action failed before it wrote. Its write is then prevented: one that comes late, also from a server with another idea of the time,
/// finds its marker.
#[test]
fn what_was_not_applied_is_not_taken_back_and_never_will_be() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("does", |_, _| async {
            Err::<(), _>(ActionError::fatal("it does not come so far"))
        });
        let debit = debit.options(quick().undo("undoes"));
        let (_runtime, results) = undone(&bench, [debit, debit_back(&bench)]).await;
        assert_eq!(seen(&results), ["NotApplied"; 3]);
        assert_eq!(bench.balance("ann").await, 100);
        let there = markers(&bench.accounts, "ann").await;
        let write = there
            .iter()
            .find(|marker| !marker.get_bool("undone").unwrap())
            .unwrap();
        let mut key = write.clone();
        key.remove("at");
        key.remove("never");
        let late = doc! { "_id": "ann", "pendingMilestones": { "$not": { "$elemMatch": key } } };
        let late = bench.accounts.update_one(late, less(30)).await.unwrap();
        assert_eq!(
            late.matched_count, 0,
            "the filter of the write finds the marker: {there:?}"
        );
        until_clean(&bench.accounts).await;
    });
}

#[test]
fn a_write_to_a_document_that_is_gone_is_not_taken_back() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("does", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(30)).await?;
            accounts.delete_one(ann()).await?;
            Ok(())
        });
        let debit = debit.options(quick().undo("undoes"));
        let (_runtime, results) = undone(&bench, [debit, debit_back(&bench)]).await;
        assert_eq!(seen(&results), ["NotApplied"; 3]);
        assert_eq!(bench.document("ann").await, None);
    });
}

#[test]
fn an_insertion_is_taken_back_by_deleting_what_was_inserted() {
    run_async(async {
        for named in [false, true] {
            let bench = Bench::new().await;
            let id = move || {
                if named {
                    doc! { "_id": "eve" }
                } else {
                    doc! {}
                }
            };
            let insert = bench.action("does", move |cx, accounts| async move {
                let mut eve = id();
                eve.insert("balance", 7);
                cx.once(&accounts).insert_one(eve).await?;
                Ok(())
            });
            let insert = insert.options(quick().undo("undoes"));
            let delete = bench.action("undoes", move |cx, accounts| async move {
                let undone = cx.once(&accounts).undo().delete_one(id()).await?;
                note(&cx, &accounts, undone).await
            });
            let (_runtime, results) = undone(&bench, [insert, delete]).await;
            assert_eq!(seen(&results), ["Now", "Before", "Before"]);
            assert_eq!(bench.accounts.count_documents(doc! {}).await.unwrap(), 2);
        }
    });
}

#[test]
fn somebody_elses_document_is_not_deleted() {
    run_async(async {
        let bench = Bench::new().await;
        let insert = bench.action("does", |cx, accounts| async move {
            let exists = cx.once(&accounts).insert_one(ann()).await;
            Err::<(), _>(ActionError::fatal(exists.unwrap_err()))
        });
        let insert = insert.options(quick().undo("undoes"));
        let delete = bench.action("undoes", |cx, accounts| async move {
            let undone = cx.once(&accounts).undo().delete_one(ann()).await?;
            note(&cx, &accounts, undone).await
        });
        let (_runtime, results) = undone(&bench, [insert, delete]).await;
        assert_eq!(seen(&results), ["NotApplied"; 3]);
        assert_eq!(bench.balance("ann").await, 100);
    });
}

/// A copy of the insertion is on its way when what another copy has inserted is deleted. Nothing on a document can stop it then, but its time is
/// over.
#[test]
fn an_insertion_that_arrives_after_its_deletion_is_refused() {
    run_async(async {
        let bench = Bench::new().await;
        let mut options = bench.place.scratch().unwrap().options().await;
        let proxy = Proxy::before(&mut options).await;
        let client = mongodb::Client::with_options(options).unwrap();
        let name = bench.accounts.namespace().db;
        let far = client.database(&name).collection::<Document>("accounts");
        let insert = bench.action("does", move |cx, _| {
            let far = far.clone();
            async move {
                cx.once(&far).insert_one(doc! { "balance": 7 }).await?;
                Ok(())
            }
        });
        let insert = insert.options(quick().undo("undoes"));
        let delete = bench.action("undoes", |cx, accounts| async move {
            let undone = cx.once(&accounts).undo().delete_one(doc! {}).await?;
            note(&cx, &accounts, undone).await
        });
        proxy.hold("update");
        let (held, undone) = tokio::join!(
            async {
                until_true("a copy is on its way", || proxy.held() == 1).await;
                proxy.hold_no_more();
                proxy.held()
            },
            undone(&bench, [insert, delete])
        );
        assert_eq!(
            (held, seen(&undone.1)),
            (1, vec!["Now", "Before", "Before"])
        );
        let count = || async { bench.accounts.count_documents(doc! {}).await.unwrap() };
        assert_eq!(count().await, 2);
        proxy.let_pass();
        until_true("the copy arrives", || proxy.held() == 0).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(count().await, 2, "the server takes a late insertion");
    });
}

/// What an attempt has left behind in a task of its own can write no more, whatever has been undone since.
#[test]
fn a_call_that_outlives_its_attempt_writes_nothing() {
    run_async(async {
        let bench = Bench::new().await;
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let leaves = bench.action("leaves", move |cx, accounts| {
            let tell = tell.clone();
            async move {
                tell.send(cx.once(&accounts).insert_one(doc! { "late": true }))
                    .unwrap();
                Ok(())
            }
        });
        let runtime = bench.worker([leaves]).await;
        run(&runtime, "leaves").await.unwrap();
        let error = told.recv().await.unwrap().await.unwrap_err();
        // On a slow machine its lease is over as well.
        assert!(
            ["once_phase", "once_lost"].contains(&error.code()),
            "{error}"
        );
        assert_eq!(
            bench
                .accounts
                .count_documents(doc! { "late": true })
                .await
                .unwrap(),
            0
        );
        assert_eq!(marked(&bench.accounts).await, 0);
    });
}
