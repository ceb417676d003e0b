//! What is undone stays so: no write of the action follows it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bson::doc;
use milestone_runtime::{
    Method, Runtime, RuntimeBuilder, Status,
    action::ActionError,
    dynamic::Action,
    mongo::{OnceError, Undone},
};
use milestone_tests::{ledger::quick, place::run_async, proxy::Proxy, transfer::marked};
use tokio::sync::{mpsc, watch};

use super::bench::{Bench, ann, less};

/// Runs a milestone until it is undone.
async fn undone(
    builder: RuntimeBuilder,
    methods: impl IntoIterator<Item = Method>,
    graph: Action,
) -> Runtime {
    let builder = methods.into_iter().fold(builder, RuntimeBuilder::register);
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let handle = runtime.start("undone", graph, ()).await.unwrap();
    let record = handle.ended().await.unwrap();
    assert_eq!(record.state, Status::Undone, "{record:#?}");
    runtime
}

/// The body was asked to stop, and given up after the grace period. It goes on all the same, and comes to its write when its undo is through.
#[test]
fn a_body_that_was_given_up_writes_nothing() {
    run_async(async {
        let bench = Bench::new().await;
        let (go, gone_on) = watch::channel(false);
        let (tell, mut told) = mpsc::unbounded_channel();
        let does = bench.action("does", move |cx, accounts| {
            let (mut gone_on, tell) = (gone_on.clone(), tell.clone());
            async move {
                gone_on.wait_for(|go| *go).await.unwrap();
                let inserted = cx.once(&accounts).insert_one(doc! { "late": true }).await;
                let updated = cx.once(&accounts).update_one(ann(), less(30)).await;
                tell.send((inserted.map(|_| ()), updated.map(|_| ())))
                    .unwrap();
                Ok(())
            }
        });
        let (tell_undone, mut told_undone) = mpsc::unbounded_channel();
        let undoes = bench.action("undoes", move |cx, accounts| {
            let tell = tell_undone.clone();
            async move {
                let undone = cx.once(&accounts).undo().delete_one(doc! {}).await?;
                tell.send(undone).unwrap();
                Ok(())
            }
        });
        let fails = bench.action("fails", |_, _| async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Err::<(), _>(ActionError::fatal("it cannot be"))
        });
        let methods = [does.options(quick().undo("undoes")), undoes, fails];
        let builder = bench.builder().grace(Duration::from_millis(100));
        let graph = Action::fork("both").next(["does", "fails"]);
        let _runtime = undone(builder, methods, graph).await;
        assert_eq!(told_undone.recv().await, Some(Undone::NotApplied));
        go.send(true).unwrap();
        let (inserted, updated) = told.recv().await.unwrap();
        let code = |result: Result<(), OnceError>| result.map_err(|error| error.code());
        assert_eq!(
            (code(inserted), code(updated)),
            (Err("once_phase"), Err("once_phase"))
        );
        assert_eq!(bench.accounts.count_documents(doc! {}).await.unwrap(), 2);
        assert_eq!(bench.balance("ann").await, 100);
        assert_eq!(marked(&bench.accounts).await, 0);
    });
}

/// The reply to a write is lost. The server may still be at it, until the time that it may take is over as well.
#[test]
fn an_undo_waits_for_a_write_whose_reply_was_lost() {
    run_async(async {
        let bench = Bench::new().await;
        let mut options = bench.place.scratch().unwrap().options().await;
        let proxy = Arc::new(Proxy::before(&mut options).await);
        let client = mongodb::Client::with_options(options).unwrap();
        let name = bench.accounts.namespace().db;
        let far = client
            .database(&name)
            .collection::<bson::Document>("accounts");
        let (tell, mut told) = mpsc::unbounded_channel();
        let (lossy, tell_sent) = (Arc::clone(&proxy), tell.clone());
        let does = bench.action("does", move |cx, _| {
            let (far, proxy, tell) = (far.clone(), Arc::clone(&lossy), tell_sent.clone());
            async move {
                // The first use of a collection takes longer.
                cx.once(&far).update_one(ann(), less(1)).await?;
                proxy.lose_replies("update", 1);
                tell.send(Instant::now()).unwrap();
                cx.once(&far).insert_one(doc! { "balance": 7 }).await?;
                Err::<(), _>(ActionError::fatal("it cannot be"))
            }
        });
        let undoes = bench.action("undoes", move |_, _| {
            let tell = tell.clone();
            async move {
                tell.send(Instant::now()).unwrap();
                Ok(())
            }
        });
        // The server begins with a write within 2 s, and is at it for 1 s at most.
        let lease = Duration::from_secs(20);
        let builder = bench.place.builder();
        let builder = builder.lease(lease).clock_skew(Duration::from_secs(8));
        let methods = [does.options(quick().undo("undoes")), undoes];
        let _runtime = undone(builder, methods, Action::new("does")).await;
        assert_eq!(proxy.lost(), 1);
        let (sent, undone) = (told.recv().await.unwrap(), told.recv().await.unwrap());
        let waited = undone - sent;
        assert!(waited > Duration::from_millis(2_700), "only {waited:?}");
    });
}
