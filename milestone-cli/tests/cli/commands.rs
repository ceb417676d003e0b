//! Commands to one milestone: what they do, say and exit with.

use std::time::Duration;

use milestone_runtime::{
    Method, Runtime, Status,
    action::ActionError,
    core::record::{ActionState, UndoState},
    dynamic::Action,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    look::{action, until},
    on_stores,
    place::Place,
};
use tokio::sync::watch;

use crate::tool::Tool;

on_stores!(sqlite, mongodb:
    a_pause_a_resume_and_a_cancel_say_what_became_of_them,
    a_failed_one_is_retried,
    what_is_refused_says_why,
    what_nobody_answers_stays_in_the_inbox,
    an_undo_that_failed_is_retried_or_waived,
    what_is_in_doubt_is_resolved,
    one_is_removed,
);

/// An action that ends once it is told to.
fn gate(name: &'static str, open: &watch::Receiver<bool>) -> Method {
    let open = open.clone();
    Method::new(name, move |call| {
        let mut open = open.clone();
        async move {
            tokio::select! {
                _ = open.wait_for(|open| *open) => Ok(name),
                () = call.context().cancelled() => Err(ActionError::new("told to stop")),
            }
        }
    })
    .options(quick())
}

async fn working(builder: milestone_runtime::RuntimeBuilder) -> Runtime {
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    runtime
}

async fn a_pause_a_resume_and_a_cancel_say_what_became_of_them(place: Place) {
    let (_open, closed) = watch::channel(false);
    // A worker reads the mail of what it runs when it renews the lease.
    let builder = place.builder().lease(Duration::from_secs(1));
    let runtime = working(builder.register(gate("gate", &closed))).await;
    let handle = runtime
        .start("Job", Action::new("gate"), ())
        .id("job")
        .await
        .unwrap();
    until(&runtime, handle.id(), |record| {
        record.state == Status::Running
    })
    .await;
    let tool = Tool::new(&place);
    let run = tool
        .run(&["pause", "job", "--reason", "the bank is closed"])
        .await;
    run.expect(
        0,
        &["job: pause done, what runs ends, and nothing new begins"],
    );
    let held = handle.record().await.unwrap().hold.unwrap();
    assert_eq!(held.reason, "the bank is closed");
    assert!(held.by.starts_with("ann"), "{}", held.by);
    let page = tool.ok(&["show", "job"]).await;
    assert!(
        page.contains("by ann") && page.contains("the bank is closed"),
        "{page}"
    );
    assert!(page.contains("milestone resume job"), "{page}");
    let listed = tool.ok(&["list", "--on-hold"]).await;
    assert!(listed.contains("(hold)"), "{listed}");
    let run = tool.run(&["pause", "job", "--json"]).await;
    run.expect(4, &["\"outcome\": \"refused\"", "it is already on hold"]);
    let run = tool.run(&["resume", "job"]).await;
    run.expect(0, &["job: resume done, it goes on"]);
    let run = tool
        .run(&["cancel", "job", "--reason", "a mistake", "--json"])
        .await;
    run.expect(0, &["\"outcome\": \"done\""]);
    assert!(handle.outcome().await.is_err());
    let page = tool.ok(&["show", "job"]).await;
    assert!(
        page.contains("cancelled at") && page.contains("a mistake"),
        "{page}"
    );
    runtime.shutdown().await;
}

async fn a_failed_one_is_retried(place: Place) {
    let (open, closed) = watch::channel(false);
    let pay = Method::new("pay", move |_| {
        let works = *closed.borrow();
        async move {
            if works {
                Ok(1)
            } else {
                Err(ActionError::fatal("the account is empty"))
            }
        }
    });
    let runtime = working(place.builder().register(pay)).await;
    let handle = runtime
        .start("Job", Action::new("pay"), ())
        .id("job")
        .await
        .unwrap();
    until(&runtime, handle.id(), |record| {
        record.state == Status::Failed
    })
    .await;
    open.send_replace(true);
    let run = Tool::new(&place).run(&["retry", "job"]).await;
    run.expect(0, &["job: retry done, it goes on from what failed"]);
    handle.outcome().await.unwrap();
    runtime.shutdown().await;
}

async fn what_is_refused_says_why(place: Place) {
    let runtime = working(place.builder().register(Ledger::new().gives("pay", 1))).await;
    let start = runtime.start("Job", Action::new("pay"), ());
    start.id("job").await.unwrap().outcome().await.unwrap();
    let tool = Tool::new(&place);
    for arguments in [
        &["retry", "job"][..],
        &["cancel", "job"],
        &["pause", "job"],
        &["resume", "job"],
        &["waive", "job", "pay"],
        &["resolve", "job", "pay", "--applied", "--output", "null"],
    ] {
        let run = tool.run(arguments).await;
        run.expect(4, &["is refused: the milestone job is completed"]);
    }
    let run = tool
        .run(&["resolve", "job", "nothing", "--applied", "--output", "1"])
        .await;
    run.expect(4, &["the milestone has no action `nothing`; it has pay"]);
    runtime.shutdown().await;
}

async fn what_nobody_answers_stays_in_the_inbox(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    let handle = client
        .start("Job", Action::new("pay"), ())
        .id("job")
        .await
        .unwrap();
    let tool = Tool::new(&place);
    let run = tool.run(&["pause", "job", "--timeout", "100ms"]).await;
    run.expect(
        5,
        &[
            "job: pause sent",
            "no worker has answered within 100ms",
            "no worker lives now",
        ],
    );
    let run = tool
        .run(&["cancel", "job", "--timeout", "0s", "--json"])
        .await;
    run.expect(5, &["\"outcome\": \"unanswered\""]);
    let page = tool.ok(&["show", "job"]).await;
    for text in ["2 commands in the inbox", "pause by ann", "no worker lives"] {
        assert!(page.contains(text), "`{text}` is not in {page}");
    }
    // It is carried out once somebody takes the milestone.
    let runtime = working(place.builder().register(Ledger::new().gives("pay", 1))).await;
    until(&runtime, handle.id(), |record| {
        record.state == Status::Cancelled
    })
    .await;
    let page = tool.ok(&["show", "job"]).await;
    assert!(page.contains("Answers, the newest first"), "{page}");
    runtime.shutdown().await;
}

async fn an_undo_that_failed_is_retried_or_waived(place: Place) {
    let ledger = Ledger::new();
    let runtime = working(
        place
            .builder()
            .register(ledger.gives("debit", 1).options(quick().undo("refund")))
            .register(ledger.fails_for_good("refund"))
            .register(ledger.fails_for_good("credit")),
    )
    .await;
    let graph = Action::new("debit").next(["credit"]);
    let handle = runtime
        .start("Transfer", graph, ())
        .id("job")
        .await
        .unwrap();
    let failed = |record: &milestone_runtime::MilestoneRecord| {
        let undo = action(record, "debit").undo.as_ref();
        undo.is_some_and(|undo| undo.state == UndoState::Failed)
    };
    until(&runtime, handle.id(), failed).await;
    let tool = Tool::new(&place);
    let page = tool.ok(&["show", "job"]).await;
    for text in [
        "`refund`, the undo of `debit`, has failed for good",
        "refund cannot work",
        "milestone retry job",
        "milestone waive job debit",
        "undo failed",
    ] {
        assert!(page.contains(text), "`{text}` is not in {page}");
    }
    let run = tool.run(&["retry", "job"]).await;
    run.expect(0, &["what has failed for good is tried again"]);
    until(&runtime, handle.id(), |record| {
        ledger.count("refund") == 2 && failed(record)
    })
    .await;
    let run = tool.run(&["waive", "job", "credit"]).await;
    run.expect(4, &["the undo of `credit` has not failed"]);
    let run = tool.run(&["waive", "job", "debit"]).await;
    run.expect(0, &["`debit` need not be undone"]);
    until(&runtime, handle.id(), |record| {
        record.state == Status::Undone
    })
    .await;
    runtime.shutdown().await;
}

async fn what_is_in_doubt_is_resolved(place: Place) {
    let hangs = Method::new("charge", |call| async move {
        if call.context().attempt() > 1 {
            return Ok(2);
        }
        std::future::pending::<()>().await;
        Err(ActionError::new("never"))
    });
    let options = milestone_runtime::action::Options::plain().timeout(Duration::from_millis(50));
    let settle = Duration::from_mins(10);
    let builder = place
        .builder()
        .settle(settle)
        .register(hangs.options(options));
    let runtime = working(builder).await;
    let tool = Tool::new(&place);
    let in_doubt = async |id: &str| {
        let handle = runtime
            .start("Order", Action::new("charge"), ())
            .id(id)
            .await
            .unwrap();
        until(&runtime, handle.id(), |record| {
            record.state == Status::InDoubt
        })
        .await;
        handle
    };

    // It took effect: with an output from the command line, from a file, from the standard input.
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("output.json");
    std::fs::write(&file, r#"{"receipt": {"$numberLong": "7"}, "paid": true}"#).unwrap();
    let file = file.display().to_string();
    for (id, output) in [
        (
            "by-option",
            [
                "--output",
                r#"{"receipt": {"$numberLong": "7"}, "paid": true}"#,
            ],
        ),
        ("by-file", ["--output-file", &file]),
    ] {
        let handle = in_doubt(id).await;
        let arguments = [&["resolve", id, "charge", "--applied"], &output[..]].concat();
        tool.run(&arguments).await.expect(0, &["it took effect"]);
        let output = handle.outcome().await.unwrap();
        assert_eq!(
            output,
            bson::doc! { "charge": { "receipt": 7_i64, "paid": true } }
        );
    }
    let handle = in_doubt("without").await;
    tool.ok(&[
        "resolve",
        "without",
        "charge",
        "--applied",
        "--output",
        "null",
    ])
    .await;
    assert_eq!(
        handle.outcome().await.unwrap(),
        bson::doc! { "charge": null }
    );

    // It did not: that is refused as long as the old attempt may take effect.
    let handle = in_doubt("not").await;
    let run = tool
        .run(&["resolve", "not", "charge", "--not-applied"])
        .await;
    run.expect(4, &["may still take effect", "--force"]);
    let record = handle.record().await.unwrap();
    assert_eq!(action(&record, "charge").state, ActionState::InDoubt);
    let run = tool
        .run(&["resolve", "not", "charge", "--not-applied", "--force"])
        .await;
    run.expect(0, &["it did not take effect"]);
    assert_eq!(handle.outcome().await.unwrap(), bson::doc! { "charge": 2 });

    let _waits = in_doubt("wrong").await;
    let run = tool
        .run(&["resolve", "wrong", "charge", "--applied", "--output", "{"])
        .await;
    run.expect(2, &["the output is no JSON"]);
    let run = tool
        .run(&[
            "resolve",
            "wrong",
            "charge",
            "--applied",
            "--output-file",
            "/nowhere",
        ])
        .await;
    run.expect(1, &["/nowhere cannot be read"]);
    let run = tool.run(&["stats"]).await;
    run.expect(
        0,
        &["in doubt:          1", "milestone list --state in_doubt"],
    );
    runtime.shutdown().await;
}

async fn one_is_removed(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    for id in ["a", "b", "c"] {
        client
            .start("Job", Action::new("pay"), ())
            .id(id)
            .await
            .unwrap();
    }
    let tool = Tool::new(&place);
    let run = tool.run(&["remove", "a"]).await;
    run.expect(2, &["remove a (Job, pending), which is not over?", "--yes"]);
    let run = tool.run(&["remove", "a", "nobody", "b", "--yes"]).await;
    run.expect(
        3,
        &["a: removed", "b: removed", "there is no milestone `nobody`"],
    );
    assert_eq!(tool.listed(&[]).await, ["c"]);
    let run = tool.run(&["remove", "c", "--yes", "--json"]).await;
    run.expect(0, &["\"outcome\": \"done\""]);
}
