//! Commands to all that a filter finds.

use milestone_runtime::{Filter, Status, dynamic::Action};
use milestone_tests::{ledger::Ledger, look::until, on_stores, place::Place};
use serde_json::Value;

use crate::tool::Tool;

on_stores!(sqlite, mongodb:
    f37_a_cancel_says_how_many_it_matched,
    those_that_failed_are_retried_at_once,
    several_are_named,
    what_is_not_confirmed_is_not_sent,
);

/// F37: cancel says how many it matched.
async fn f37_a_cancel_says_how_many_it_matched(place: Place) {
    let ledger = Ledger::new();
    let builder = place.builder().register(ledger.gives("pay", 1));
    let runtime = builder.build().await.unwrap();
    for index in 0..30 {
        let kind = if index < 25 { "Report" } else { "Invoice" };
        let start = runtime.start(kind, Action::new("pay").next(["nobody"]), ());
        start.id(format!("{kind}-{index:02}")).await.unwrap();
    }
    runtime.spawn();
    let tool = Tool::new(&place);
    let none = tool
        .run(&[
            "cancel",
            "--type",
            "Report",
            "--created-before",
            "1h",
            "--yes",
        ])
        .await;
    none.expect(0, &["cancel: 0 matched, 0 done, 0 refused"]);
    let run = tool
        .run(&[
            "cancel",
            "--type",
            "Report",
            "--created-after",
            "1h",
            "--yes",
        ])
        .await;
    run.expect(0, &["cancel: 25 matched, 25 done, 0 refused"]);
    let cancelled = Filter::new().kind("Report").state(Status::Cancelled);
    assert_eq!(runtime.count(cancelled).await.unwrap(), 25);
    assert_eq!(runtime.count(Filter::unfinished()).await.unwrap(), 5);
    // Those that have ended no longer match.
    let run = tool
        .run(&["cancel", "--type", "Report", "--yes", "--json"])
        .await;
    run.expect(0, &["\"matched\": 0"]);

    // What is on hold already is refused, and that has a code of its own.
    let run = tool.run(&["pause", "Invoice-25"]).await;
    run.expect(0, &["pause done"]);
    let run = tool.run(&["pause", "--all", "--yes"]).await;
    run.expect(
        4,
        &[
            "pause: 5 matched, 4 done, 1 refused",
            "it is already on hold",
        ],
    );
    let run = tool.run(&["resume", "--on-hold", "--yes", "--json"]).await;
    run.expect(0, &["\"matched\": 5, \"done\": 5, \"refused\": 0"]);
    assert_eq!(run.out.lines().count(), 6);
    for line in run.out.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["command"], "resume");
    }
    runtime.shutdown().await;
}

async fn those_that_failed_are_retried_at_once(place: Place) {
    let ledger = Ledger::new();
    let builder = place.builder().register(ledger.fails_for_good("pay"));
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let mut handles = Vec::new();
    for _ in 0..3 {
        handles.push(runtime.start("Job", Action::new("pay"), ()).await.unwrap());
    }
    for handle in &handles {
        until(&runtime, handle.id(), |record| {
            record.state == Status::Failed
        })
        .await;
    }
    let tool = Tool::new(&place);
    let run = tool.run(&["retry", "--state", "failed", "--yes"]).await;
    run.expect(0, &["retry: 3 matched, 3 done, 0 refused"]);
    for handle in &handles {
        let again = |record: &milestone_runtime::MilestoneRecord| {
            record.state == Status::Failed && record.actions[0].attempts == 2
        };
        until(&runtime, handle.id(), again).await;
    }
    runtime.shutdown().await;
}

async fn several_are_named(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    for id in ["a", "b"] {
        client
            .start("Job", Action::new("pay"), ())
            .id(id)
            .await
            .unwrap();
    }
    let tool = Tool::new(&place);
    let run = tool
        .run(&["pause", "a", "b", "nobody", "--timeout", "50ms"])
        .await;
    run.expect(
        3,
        &["a: pause sent", "b: pause sent", "nobody does not exist"],
    );
    let run = tool.run(&["pause", "a", "b", "--timeout", "50ms"]).await;
    run.expect(5, &["stays in the inboxes"]);
}

async fn what_is_not_confirmed_is_not_sent(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    let handle = client.start("Job", Action::new("pay"), ()).await.unwrap();
    let tool = Tool::new(&place);
    let run = tool
        .run(&["cancel", "--type", "Job", "--state", "pending"])
        .await;
    run.expect(
        2,
        &["cancel 1 milestone of type Job, in state pending?", "--yes"],
    );
    let run = tool.run(&["cancel"]).await;
    run.expect(2, &["name the milestones, or say which"]);
    let run = tool.run(&["cancel", "a", "--type", "Job"]).await;
    run.expect(2, &["cannot be used with"]);
    assert_eq!(handle.record().await.unwrap().mail, 0);
}
