//! Stored documents as they are in each state, in `tests/golden`. A change of the stored shape shows as a difference of these files, and
//! running milestones must bear it. `UPDATE_GOLDEN=1 cargo test -p milestone-tests --test golden` writes them anew.

#[path = "golden/print.rs"]
mod print;
#[path = "golden/story.rs"]
mod story;

use std::{fs, path::PathBuf, time::Duration};

use bson::{Bson, Document, doc};
use milestone_core::{
    graph::{Action, Plan, PlannedAction, Resolved},
    machine::check,
    options::Mode,
    record::{AttemptKind, MilestoneRecord, Order, Status},
};

use crate::story::{Story, failed};

/// debit -> credit, where a debit can be undone.
fn transfer() -> Plan {
    let mut debit = PlannedAction::new("debit", Mode::Idempotent);
    debit.undo = Some("refund".to_owned());
    let mut credit = PlannedAction::new("credit", Mode::Idempotent).after([0]);
    credit.queue = Some("bank".to_owned());
    Plan::new(vec![debit, credit]).expect("a valid graph")
}

/// reserve -> charge, without an undo, at most once.
fn order() -> Plan {
    let reserve = PlannedAction::new("reserve", Mode::Plain);
    let charge = PlannedAction::new("charge", Mode::Plain).after([0]);
    Plan::new(vec![reserve, charge]).expect("a valid graph")
}

fn start_transfer() -> Story {
    let parameters = doc! { "from": "ann", "to": "bob", "amount": 250_i64 };
    Story::new("Transfer", transfer(), parameters)
}

fn start_order() -> Story {
    Story::new("Order", order(), doc! { "item": "book", "price": 12.5 })
}

/// Compares with the file, and reads the file back.
fn golden(name: &str, state: Status, story: &Story) {
    let record = &story.record;
    assert_eq!(record.state, state);
    assert_eq!(check(record), []);
    let document = record.to_document().expect("a document");
    assert_eq!(
        document, story.document,
        "the patches give the same document"
    );
    let text = print::pretty(&document);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
        .with_extension("json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).expect("the file can be written");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{} is not what is stored now. If that is meant, and running milestones bear it: UPDATE_GOLDEN=1\n{text}",
        path.display()
    );
    let read: Document = serde_json::from_str(&stored).expect("extended JSON");
    assert_eq!(read, document);
    assert_eq!(
        MilestoneRecord::from_document(read).expect("a milestone"),
        *record
    );
}

#[test]
fn pending() {
    golden("pending", Status::Pending, &start_transfer());
}

#[test]
fn running() {
    let mut story = start_transfer();
    story.claim();
    story.begin(&["debit"]);
    story.succeed("debit", doc! { "balance": 750_i64 });
    story.begin(&["credit"]);
    golden("running", Status::Running, &story);
}

#[test]
fn waiting() {
    let mut story = start_transfer();
    story.claim();
    story.run("debit", doc! { "balance": 750_i64 });
    story.begin(&["credit"]);
    story.fail("credit", failed("BankError", "the bank does not answer"));
    story.hand_back();
    golden("waiting", Status::Waiting, &story);
}

#[test]
fn in_doubt() {
    let mut story = start_order();
    story.claim();
    story.run("reserve", doc! { "shelf": 7 });
    story.begin(&["charge"]);
    story.wait(12);
    story.claim();
    story.hand_back();
    golden("in_doubt", Status::InDoubt, &story);
}

/// A function is asked whether the charge took effect; its first answer is an error.
#[test]
fn verifying() {
    let mut reserve = PlannedAction::new("reserve", Mode::Idempotent);
    reserve.undo = Some("release".to_owned());
    let mut charge = PlannedAction::new("charge", Mode::Plain).after([0]);
    charge.verify = Some("was_charged".to_owned());
    let plan = Plan::new(vec![reserve, charge]).expect("a plan");
    let deadline = Some(Duration::from_hours(1));
    let mut story = Story::within(deadline, "Order", plan, doc! { "order": "o-1" });
    story.claim();
    story.run("reserve", doc! { "shelf": 7 });
    story.begin(&["charge"]);
    story.wait(12);
    story.claim();
    story.wait(30);
    story.begin(&["was_charged of charge"]);
    let error = failed("HttpError", "503 Service Unavailable");
    story.fail("was_charged of charge", error);
    story.wait(1);
    story.begin(&["was_charged of charge"]);
    golden("verifying", Status::InDoubt, &story);
}

/// Seven workers have died in the middle of it.
#[test]
fn parked() {
    let mut story = start_transfer();
    story.claim();
    for _ in 0..7 {
        story.begin(&["debit"]);
        story.wait(12);
        story.claim();
    }
    story.hand_back();
    golden("parked", Status::Running, &story);
}

#[test]
fn undoing() {
    let mut story = start_transfer();
    story.claim();
    story.run("debit", doc! { "balance": 750_i64 });
    story.begin(&["credit"]);
    story.fail_for_good("credit", "the account is closed");
    story.begin(&["refund of debit"]);
    story.fail(
        "refund of debit",
        failed("BankError", "the bank does not answer"),
    );
    story.wait(1);
    story.begin(&["refund of debit"]);
    golden("undoing", Status::Undoing, &story);
}

#[test]
fn undone() {
    let mut story = start_transfer();
    story.claim();
    story.run("debit", doc! { "balance": 750_i64 });
    story.begin(&["credit"]);
    story.fail_for_good("credit", "the account is closed");
    story.run("refund of debit", Bson::Null);
    golden("undone", Status::Undone, &story);
}

#[test]
fn completed() {
    let mut story = start_transfer();
    story.claim();
    story.run("debit", doc! { "balance": 750_i64 });
    story.run("credit", doc! { "balance": 1250_i64 });
    golden("completed", Status::Completed, &story);
}

#[test]
fn failed_for_good() {
    let mut story = start_order();
    story.claim();
    story.begin(&["reserve"]);
    story.fail_for_good("reserve", "nothing on the shelf");
    golden("failed", Status::Failed, &story);
}

#[test]
fn cancelled() {
    let mut story = start_order();
    story.claim();
    story.run("reserve", doc! { "shelf": 7 });
    story.order(Order::Cancel {
        reason: "the customer changed her mind".to_owned(),
    });
    story.mail();
    golden("cancelled", Status::Cancelled, &story);
}

#[test]
fn on_hold() {
    let mut story = start_order();
    story.claim();
    story.run("reserve", doc! { "shelf": 7 });
    story.order(Order::Pause {
        reason: "the card terminal is down".to_owned(),
    });
    story.mail();
    story.hand_back();
    golden("on_hold", Status::Running, &story);
}

#[test]
fn commands_read_and_unread() {
    let mut story = start_order();
    story.claim();
    story.run("reserve", doc! { "shelf": 7 });
    story.order(Order::Retry);
    story.mail();
    story.begin(&["charge"]);
    story.cut_off("charge", AttemptKind::Timeout);
    let output = doc! { "receipt": "r-1" }.into();
    story.order(Order::Resolve {
        action: "charge".to_owned(),
        attempt: Some(1),
        applied: true,
        output,
    });
    story.order(Order::Resume);
    golden("commands", Status::InDoubt, &story);
}

#[test]
fn a_report_cut_short() {
    let mut story = start_order();
    story.claim();
    story.begin(&["reserve"]);
    for number in 1..=40 {
        story.fail(
            "reserve",
            failed("ShelfError", &format!("failure {number}")),
        );
        story.wait(300);
        story.begin(&["reserve"]);
    }
    golden("report_cut", Status::Running, &story);
}

#[test]
fn a_dynamic_graph_with_a_fork() {
    let action = Action::new("op-1")
        .next([Action::fork("op-2").next(["op-2.1", "op-2.2"])])
        .done(Action::new("op-3").method("op-1"));
    let plan = action
        .into_plan(|_| Some(Resolved::idempotent()))
        .expect("a valid graph");
    let mut story = Story::new("op-1", plan, Bson::Null);
    story.claim();
    story.run("op-1", Bson::Null);
    story.begin(&["op-2.1"]);
    golden("fork", Status::Running, &story);
}
