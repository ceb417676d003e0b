//! Applied once, however often the action runs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::{Document, doc};
use milestone_runtime::{
    action::ActionError,
    dynamic::Action,
    mongo::{OnceError, Written},
};
use milestone_tests::{
    ledger::quick,
    look::until_true,
    place::run_async,
    proxy::Proxy,
    transfer::{marked, markers, until_clean},
};

use super::bench::{Bench, Runs, ann, less, only, run, start};

#[test]
fn an_action_that_runs_five_times_writes_once() {
    run_async(async {
        let bench = Bench::new().await;
        let seen: Arc<Mutex<Vec<Written>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let debit = bench.action("debit", move |cx, accounts| {
            let seen = Arc::clone(&noted);
            async move {
                let written = cx.once(&accounts).update_one(ann(), less(30)).await?;
                seen.lock().unwrap().push(written);
                if cx.attempt() < 5 {
                    return Err(ActionError::new("the reply is lost"));
                }
                Ok(())
            }
        });
        let runtime = bench.worker([debit]).await;
        let handle = start(&runtime, "debit").await;
        handle.outcome().await.unwrap();
        assert_eq!(bench.balance("ann").await, 70);
        let before = [Written::Before; 4];
        assert_eq!(
            *seen.lock().unwrap(),
            [&[Written::Now][..], &before].concat()
        );
        let markers = markers(&bench.accounts, "ann").await;
        let [marker] = &*markers else {
            panic!("{markers:?}");
        };
        let id = handle.id().to_string();
        assert_eq!(marker.get_object_id("milestone").unwrap().to_string(), id);
        assert_eq!(marker.get_str("action").unwrap(), "debit");
        until_clean(&bench.accounts).await;
        let ann = bench.document("ann").await.unwrap();
        assert_eq!(ann, doc! { "_id": "ann", "balance": 70 });
    });
}

#[test]
fn labels_tell_two_writes_of_one_action_apart() {
    run_async(async {
        let bench = Bench::new().await;
        let labelled = bench.action("labelled", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(30)).await?;
            cx.once(&accounts)
                .label("fee")
                .update_one(ann(), less(1))
                .await?;
            cx.once(&accounts)
                .update_one(doc! { "_id": "bob" }, less(-30))
                .await?;
            if cx.attempt() < 3 {
                return Err(ActionError::new("again"));
            }
            Ok(())
        });
        let unlabelled = bench.action("unlabelled", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(5)).await?;
            cx.once(&accounts).update_one(ann(), less(1)).await?;
            Ok(())
        });
        let runtime = bench.worker([labelled, unlabelled]).await;
        run(&runtime, "labelled").await.unwrap();
        assert_eq!(
            (bench.balance("ann").await, bench.balance("bob").await),
            (69, 130)
        );
        let error = run(&runtime, "unlabelled").await.unwrap_err();
        assert!(error.to_string().contains(".label("), "{error}");
        assert_eq!(bench.balance("ann").await, 64);
    });
}

#[test]
fn two_milestones_with_the_same_action_both_write() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("debit", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(10)).await?;
            if cx.attempt() == 1 {
                return Err(ActionError::new("again"));
            }
            Ok(())
        });
        let runtime = bench.worker([debit]).await;
        let both = [
            start(&runtime, "debit").await,
            start(&runtime, "debit").await,
        ];
        for handle in both {
            handle.outcome().await.unwrap();
        }
        assert_eq!(bench.balance("ann").await, 80);
        // One action twice in one graph has two names, and writes twice.
        let graph = Action::new("first")
            .method("debit")
            .next([Action::new("second").method("debit")]);
        let twice = runtime.start("twice", graph, ()).await.unwrap();
        twice.outcome().await.unwrap();
        assert_eq!(bench.balance("ann").await, 60);
    });
}

#[test]
fn a_pipeline_and_a_push_are_updates_as_well() {
    run_async(async {
        let bench = Bench::new().await;
        let both = bench.action("both", |cx, accounts| async move {
            let half = doc! { "$set": { "balance": { "$toInt": { "$divide": ["$balance", 2] } } } };
            cx.once(&accounts).update_one(ann(), vec![half]).await?;
            let log = doc! { "$push": { "log": "halved" } };
            cx.once(&accounts)
                .label("log")
                .update_one(ann(), log)
                .await?;
            if cx.attempt() == 1 {
                return Err(ActionError::new("again"));
            }
            Ok(())
        });
        let runtime = bench.worker([both]).await;
        run(&runtime, "both").await.unwrap();
        until_clean(&bench.accounts).await;
        let expected = doc! { "_id": "ann", "balance": 50, "log": ["halved"] };
        assert_eq!(bench.document("ann").await.unwrap(), expected);
    });
}

/// The conditions of a filter hold or do not: that is told apart from a write that was applied before, though it made them false.
#[test]
fn conditions_that_do_not_hold_are_told() {
    run_async(async {
        let bench = Bench::new().await;
        let enough = || doc! { "_id": "ann", "balance": { "$gte": 60 } };
        let debit = bench.action("debit", move |cx, accounts| async move {
            let written = cx.once(&accounts).update_one(enough(), less(60)).await;
            match written {
                Err(error @ OnceError::Unmatched { .. }) => Err(ActionError::fatal(error)),
                written if cx.attempt() > 1 => Ok(format!("{:?}", written?)),
                written => Err(ActionError::new(format!("{written:?}"))),
            }
        });
        let runtime = bench.worker([debit]).await;
        run(&runtime, "debit").await.unwrap();
        assert_eq!(bench.balance("ann").await, 40);
        let error = run(&runtime, "debit").await.unwrap_err();
        assert!(
            error.to_string().contains("does not meet the conditions"),
            "{error}"
        );
        assert_eq!(bench.balance("ann").await, 40);
        assert_eq!(markers(&bench.accounts, "ann").await.len(), 1);
    });
}

#[test]
fn a_document_that_is_not_there_is_told_or_inserted() {
    run_async(async {
        let bench = Bench::new().await;
        let missing = bench.action("missing", |cx, accounts| async move {
            let error = cx
                .once(&accounts)
                .update_one(doc! { "_id": "eve" }, less(1))
                .await
                .unwrap_err();
            assert_eq!((error.code(), error.is_fatal()), ("once_missing", true));
            // An answer, after which another write of that name would be another one.
            let again = cx
                .once(&accounts)
                .update_one(doc! { "_id": "eve" }, less(1))
                .await;
            assert_eq!(again.unwrap_err().code(), "once_twice");
            Ok(error.to_string())
        });
        let open = bench.action("open", |cx, accounts| async move {
            let eve = doc! { "_id": "eve" };
            let new = doc! { "balance": 7 };
            cx.once(&accounts)
                .update_one(eve, less(-7))
                .or_insert(new)
                .await?;
            if cx.attempt() < 3 {
                return Err(ActionError::new("again"));
            }
            Ok(())
        });
        let runtime = bench.worker([missing, open]).await;
        let told = run(&runtime, "missing").await.unwrap();
        let expected = format!(
            "there is no document \"eve\" of {}; where one is to be made, say it by `.or_insert(..)`",
            bench.accounts.namespace()
        );
        assert_eq!(told.as_str(), Some(&*expected));
        assert_eq!(bench.document("eve").await, None);
        for balance in [7, 14] {
            run(&runtime, "open").await.unwrap();
            assert_eq!(bench.balance("eve").await, balance);
        }
        until_clean(&bench.accounts).await;
        assert_eq!(
            bench.document("eve").await,
            Some(doc! { "_id": "eve", "balance": 14 })
        );
    });
}

/// The marker of a milestone that was removed says nothing of another one that was started with its id.
#[test]
fn an_id_that_is_used_again_is_another_milestone() {
    run_async(async {
        let bench = Bench::new().await;
        let debit = bench.action("debit", |cx, accounts| async move {
            Ok(format!(
                "{:?}",
                cx.once(&accounts).update_one(ann(), less(10)).await?
            ))
        });
        let runtime = bench.worker([debit]).await;
        for balance in [90, 80] {
            let start = runtime.start("one", Action::new("debit"), ()).id("order-7");
            let written = only(start.await.unwrap().outcome().await.unwrap());
            assert_eq!(written.as_str(), Some("Now"));
            assert_eq!(bench.balance("ann").await, balance);
            assert!(runtime.remove("order-7").await.unwrap());
        }
        assert_eq!(marked(&bench.accounts).await, 1);
        until_clean(&bench.accounts).await;
    });
}

/// A body that is dropped in the middle of a call, and a call whose reply is lost again and again.
#[test]
fn lost_replies_and_dropped_bodies_write_once() {
    run_async(async {
        let bench = Bench::new().await;
        let mut options = bench.place.scratch().unwrap().options().await;
        let proxy = Proxy::before(&mut options).await;
        options.server_selection_timeout = Some(Duration::from_secs(5));
        let client = mongodb::Client::with_options(options).unwrap();
        let namespace = bench.accounts.namespace();
        let accounts = client
            .database(&namespace.db)
            .collection::<Document>("accounts");
        let runs = Runs::default();
        let debit = bench.action("debit", move |cx, _| {
            let (accounts, runs) = (accounts.clone(), runs.clone());
            async move {
                runs.add();
                if cx.attempt() == 1 {
                    let dropped = cx.once(&accounts).update_one(ann(), less(1));
                    let _ =
                        tokio::time::timeout(Duration::from_millis(1), dropped.into_future()).await;
                }
                cx.once(&accounts).update_one(ann(), less(1)).await?;
                if cx.attempt() == 1 {
                    return Err(ActionError::new("again"));
                }
                Ok(())
            }
        });
        let runtime = bench.worker([debit]).await;
        run(&runtime, "debit").await.unwrap();
        assert_eq!(bench.balance("ann").await, 99);
        for balance in (97..99).rev() {
            proxy.lose_replies("update", 3);
            run(&runtime, "debit").await.unwrap();
            assert_eq!(bench.balance("ann").await, balance);
        }
        assert!(proxy.lost() >= 4, "{}", proxy.lost());
        until_clean(&bench.accounts).await;
    });
}

/// A copy of the write, of an attempt that was cut off, is on its way when the conditions do not hold: that is no answer before the copy is over.
#[test]
fn conditions_that_do_not_hold_are_no_answer_while_a_copy_is_on_its_way() {
    run_async(async {
        let bench = Bench::new().await;
        let mut options = bench.place.scratch().unwrap().options().await;
        let proxy = Arc::new(Proxy::before(&mut options).await);
        let client = mongodb::Client::with_options(options).unwrap();
        let name = bench.accounts.namespace().db;
        let far = client.database(&name).collection::<Document>("accounts");
        let network = Arc::clone(&proxy);
        let debit = bench.action("debit", move |cx, _| {
            let (far, network) = (far.clone(), Arc::clone(&network));
            async move {
                // The first use of a collection takes longer.
                cx.once(&far)
                    .label("first")
                    .update_one(ann(), less(0))
                    .await?;
                if cx.attempt() == 1 {
                    network.hold("update");
                }
                let rich = doc! { "_id": "ann", "balance": { "$gte": 150 } };
                let written = cx.once(&far).update_one(rich, less(30)).await;
                Ok(format!("{written:?}"))
            }
        });
        let builder = bench.place.builder().lease(Duration::from_secs(20));
        let debit = debit.options(quick().timeout(Duration::from_millis(400)));
        let builder = builder.clock_skew(Duration::from_secs(30)).register(debit);
        let runtime = builder.build().await.unwrap();
        runtime.spawn();
        let handle = start(&runtime, "debit").await;
        until_true("the write is held", || proxy.held() == 1).await;
        proxy.hold_no_more();
        // The second attempt finds the conditions unmet. Then they are met, and the first one arrives.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let rich = doc! { "$set": { "balance": 200 } };
        bench.accounts.update_one(ann(), rich).await.unwrap();
        proxy.let_pass();
        let outcome = only(handle.outcome().await.unwrap());
        assert_eq!(outcome.as_str(), Some("Ok(Before)"));
        assert_eq!(bench.balance("ann").await, 170);
    });
}
