//! `list`, `show`, `stats`, `workers` and `graph`.

use std::time::Duration;

use milestone_runtime::{
    Method, MilestoneId, Runtime, Status,
    action::{ActionError, Options, RetryPolicy},
    dynamic::Action,
};
use milestone_tests::{ledger::Ledger, look::until, on_stores, place::Place};
use serde_json::Value;

use crate::tool::{Tool, id};

on_stores!(sqlite, mongodb:
    f37_a_list_is_filtered_by_typed_ids_and_dates,
    a_list_shows_what_struggles,
    a_list_goes_on_where_it_ended,
    f42_what_no_worker_has_is_told,
    a_document_is_shown_as_json,
    what_is_not_there_is_not_found,
    all_is_counted,
    workers_are_listed,
    a_graph_is_drawn,
);

/// An action that fails now, and is tried again in an hour.
fn struggling(name: &str) -> Method {
    let hour = Duration::from_hours(1);
    let policy = RetryPolicy::new().base(hour).cap(hour);
    let message = format!("{name} finds nobody there\nand says so");
    Method::new(name, move |_| {
        let error = ActionError::new(message.clone());
        async move { Err::<(), _>(error) }
    })
    .options(Options::idempotent().retry(policy))
}

/// A worker, and three milestones: `paid` is completed, `unpaid` has failed, `late` waits.
async fn filled(place: &Place) -> Runtime {
    let ledger = Ledger::new();
    let runtime = place
        .builder()
        .register(ledger.gives("pay", 1))
        .register(ledger.fails_for_good("owe"))
        .register(struggling("ask"))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    for (id, kind, action, state) in [
        ("paid", "Invoice", "pay", Status::Completed),
        ("unpaid", "Invoice", "owe", Status::Failed),
        ("late", "Reminder", "ask", Status::Waiting),
    ] {
        let start = runtime.start(kind, Action::new(action), ());
        let handle = start.id(id).label("customer", id).await.unwrap();
        until(&runtime, handle.id(), |record| record.state == state).await;
    }
    runtime
}

/// F37: filters by ids and dates are typed.
async fn f37_a_list_is_filtered_by_typed_ids_and_dates(place: Place) {
    let runtime = filled(&place).await;
    let made = runtime
        .start("Invoice", Action::new("pay"), ())
        .await
        .unwrap();
    let made_id = made.id().to_string();
    let text = runtime
        .start("Invoice", Action::new("pay"), ())
        .id(made_id.to_uppercase())
        .await
        .unwrap();
    for handle in [&made, &text] {
        handle.outcome().await.unwrap();
    }
    let tool = Tool::new(&place);
    let text = text.id().to_string();
    let all = [made_id.as_str(), "unpaid", "paid", "late", text.as_str()];
    assert_eq!(tool.listed(&[]).await, all);
    assert_eq!(tool.listed(&["--type", "Reminder"]).await, ["late"]);
    assert_eq!(
        tool.listed(&["--state", "failed,waiting"]).await,
        ["unpaid", "late"]
    );
    assert_eq!(
        tool.listed(&["--state", "failed", "--state", "waiting"])
            .await,
        ["unpaid", "late"]
    );
    assert_eq!(tool.listed(&["--label", "customer=paid"]).await, ["paid"]);
    assert_eq!(tool.listed(&["--created-after", "1h"]).await.len(), 5);
    assert_eq!(
        tool.listed(&["--created-before", "1h"]).await,
        Vec::<String>::new()
    );

    // A date of a document is a date, to the millisecond.
    let shown = tool.ok(&["show", "unpaid", "--json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let created = shown["createdAt"]["$date"].as_str().unwrap();
    let from = tool.listed(&["--created-after", created]).await;
    let before = tool.listed(&["--created-before", created]).await;
    assert!(from.contains(&"unpaid".to_owned()) && before.contains(&"paid".to_owned()));
    assert_eq!(from.len() + before.len(), 5);

    // 24 digits are an ObjectId if there is one, and what is written otherwise is a string.
    let shown = tool.ok(&["show", &made_id, "--json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["_id"]["$oid"], made_id.as_str());
    let shown = tool.ok(&["show", &format!("\"{text}\""), "--json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["_id"], text.as_str());
    let both = tool.run(&["show", &text]).await;
    both.expect(1, &["is the id of two milestones", "$oid"]);
    runtime.shutdown().await;
}

async fn a_list_shows_what_struggles(place: Place) {
    let runtime = filled(&place).await;
    let tool = Tool::new(&place);
    let text = tool.ok(&["list"]).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(
        words(lines[0])[..6],
        ["ID", "TYPE", "STATE", "AGE", "ACTIONS", "FAILURES"]
    );
    let line = |id: &str| *lines.iter().find(|line| line.starts_with(id)).unwrap();
    let late = words(line("late"));
    assert_eq!(late[1..3], ["Reminder", "waiting"]);
    assert_eq!(late[4..6], ["0/1", "1"]);
    assert!(
        line("late").ends_with("ask: ask finds nobody there and says so"),
        "{text}"
    );
    assert!(line("unpaid").contains("failed") && line("unpaid").ends_with("owe: owe cannot work"));
    assert_eq!(words(line("paid"))[1..3], ["Invoice", "completed"]);
    assert_eq!(words(line("paid")).len(), 5, "{text}");
    // No colour goes into a pipe, unless it is asked for.
    assert!(!text.contains('\u{1b}') && !text.contains(" \n"));
    let coloured = tool.ok(&["list", "--color", "always"]).await;
    assert!(coloured.contains("\u{1b}["));
    let none = tool.run(&["list", "--type", "Nothing"]).await;
    none.expect(0, &["there are no milestones like that"]);
    runtime.shutdown().await;
}

async fn a_list_goes_on_where_it_ended(place: Place) {
    let runtime = filled(&place).await;
    let tool = Tool::new(&place);
    let first = tool.run(&["list", "--limit", "2", "--json"]).await;
    first.expect(0, &["--after paid"]);
    assert_eq!(first.out.lines().count(), 2);
    assert_eq!(
        tool.listed(&["--limit", "2", "--after", "paid"]).await,
        ["late"]
    );
    assert_eq!(
        tool.listed(&["--limit", "0"]).await,
        ["unpaid", "paid", "late"]
    );
    runtime.shutdown().await;
}

/// F42: `show` says that no worker has `x`.
async fn f42_what_no_worker_has_is_told(place: Place) {
    let runtime = filled(&place).await;
    runtime
        .start("Report", Action::new("print"), ())
        .id("report")
        .await
        .unwrap();
    let tool = Tool::new(&place);
    let text = tool.ok(&["show", "report"]).await;
    assert!(text.contains("no worker has `print`"), "{text}");
    assert!(text.contains("○ print  ready"), "{text}");
    let text = tool.ok(&["show", "late"]).await;
    assert!(text.contains("`ask` is tried again at"), "{text}");
    assert!(!text.contains("no worker"), "{text}");
    runtime.shutdown().await;
}

async fn a_document_is_shown_as_json(place: Place) {
    let runtime = filled(&place).await;
    let tool = Tool::new(&place);
    let text = tool.ok(&["show", "unpaid", "--json"]).await;
    let shown: bson::Document = serde_json::from_str(&text).unwrap();
    let stored = runtime.get("unpaid").await.unwrap().unwrap();
    assert_eq!(shown.get_str("_id").unwrap(), "unpaid");
    assert_eq!(
        shown.get_datetime("endDate").unwrap(),
        stored.end_date.as_ref().unwrap()
    );
    assert_eq!(shown.keys().next().map(String::as_str), Some("_id"));
    let page = tool.ok(&["show", "unpaid"]).await;
    for text in [
        "How it ended",
        "milestone retry unpaid",
        "owe #1",
        "owe cannot work",
        "✗ owe",
    ] {
        assert!(page.contains(text), "`{text}` is not in {page}");
    }
    runtime.shutdown().await;
}

async fn what_is_not_there_is_not_found(place: Place) {
    let runtime = filled(&place).await;
    let tool = Tool::new(&place);
    let missing = "there is no milestone `nobody`";
    for arguments in [
        &["show", "nobody"][..],
        &["graph", "nobody"],
        &["remove", "nobody", "--yes"],
        &["resolve", "nobody", "pay", "--applied", "--output", "1"],
    ] {
        tool.run(arguments).await.expect(3, &[missing]);
    }
    for arguments in [
        &["retry", "nobody"][..],
        &["cancel", "nobody"],
        &["pause", "nobody"],
        &["resume", "nobody"],
        &["waive", "nobody", "pay"],
    ] {
        tool.run(arguments)
            .await
            .expect(3, &["nobody does not exist"]);
    }
    let run = tool.run(&["graph", "--type", "Nothing"]).await;
    run.expect(3, &["there is no milestone of the type `Nothing`"]);
    runtime.shutdown().await;
}

async fn all_is_counted(place: Place) {
    let runtime = filled(&place).await;
    runtime
        .start("Invoice", Action::new("pay"), ())
        .id("another")
        .await
        .unwrap()
        .outcome()
        .await
        .unwrap();
    let tool = Tool::new(&place);
    let text = tool.ok(&["stats"]).await;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["TYPE", "WAITING", "COMPLETED", "FAILED", "ALL"],
        "{text}"
    );
    assert_eq!(rows[1], ["Invoice", "-", "2", "1", "3"]);
    assert_eq!(rows[2], ["Reminder", "1", "-", "-", "1"]);
    assert!(text.contains("in doubt:          0"), "{text}");
    assert!(text.contains("live workers:      1\n"), "{text}");
    let json: Value = serde_json::from_str(&tool.ok(&["stats", "--json"]).await).unwrap();
    assert_eq!(json["counts"].as_array().unwrap().len(), 3);
    assert_eq!(json["counts"][0]["count"], 2);
    assert!(json["oldestUnfinished"]["$date"].is_string());
    assert_eq!(json["liveWorkers"], 1);
    runtime.shutdown().await;
}

async fn workers_are_listed(place: Place) {
    let runtime = filled(&place).await;
    let tool = Tool::new(&place);
    let text = tool.ok(&["workers"]).await;
    assert!(
        text.contains("ask,owe,pay") && text.contains("yes"),
        "{text}"
    );
    let workers = tool.documents(&["workers", "--json"]).await;
    assert_eq!(workers.len(), 1);
    assert_eq!(id(&workers[0]), runtime.worker());
    assert_eq!(workers[0]["live"], true);
    // The tool itself is no worker.
    assert_eq!(tool.documents(&["workers", "--json"]).await.len(), 1);
    runtime.shutdown().await;
}

async fn a_graph_is_drawn(place: Place) {
    let runtime = filled(&place).await;
    let graph = Action::new("pay").next([Action::new("owe"), Action::new("ask")]);
    let handle = runtime.start("Bill", graph, ()).id("bill").await.unwrap();
    let id: &MilestoneId = handle.id();
    let waits = |record: &milestone_runtime::MilestoneRecord| record.state == Status::Waiting;
    until(&runtime, id, waits).await;
    let tool = Tool::new(&place);
    let text = tool.ok(&["graph", "bill"]).await;
    assert!(text.starts_with("digraph \"Bill\" {"), "{text}");
    assert!(text.contains("label=\"owe\\nfailed\""), "{text}");
    assert!(text.contains("a0 -> a1;"), "{text}");
    let text = tool.ok(&["graph", "bill", "--format", "mermaid"]).await;
    assert!(
        text.contains("(\"pay<br/>completed\"):::completed"),
        "{text}"
    );
    let text = tool
        .ok(&["graph", "--type", "Bill", "--format", "mermaid"])
        .await;
    assert!(
        text.contains("(\"pay\")\n") && !text.contains("completed"),
        "{text}"
    );
    let page = tool.ok(&["show", "bill"]).await;
    assert!(
        page.contains("✓ pay") && page.contains("├─╮") && page.contains("↻ ask"),
        "{page}"
    );
    runtime.shutdown().await;
}
