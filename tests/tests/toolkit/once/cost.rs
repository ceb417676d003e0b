//! What a call costs, counted by the driver's command events.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bson::doc;
use milestone_runtime::{
    Method,
    action::ActionError,
    dynamic::Action,
    store::mongodb::{DEFAULT_COLLECTION, MongoStore},
};
use milestone_tests::{
    ledger::quick,
    place::{bare, run_async},
};
use mongodb::{
    Client,
    event::{EventHandler, command::CommandEvent},
};

use super::bench::{Bench, ann, less, run};

/// The commands to the accounts and to the witnesses, by collection and name.
#[derive(Clone, Default)]
struct Commands(Arc<Mutex<BTreeMap<String, usize>>>);

impl Commands {
    fn handler(&self) -> EventHandler<CommandEvent> {
        let commands = self.clone();
        EventHandler::callback(move |event| {
            let CommandEvent::Started(started) = event else {
                return;
            };
            let target = started.command.get_str(&started.command_name).unwrap_or("");
            let target = target.rsplit('.').next().unwrap_or("");
            let is_hello = started.command_name == "hello";
            if is_hello || ["accounts", "witnesses", "marked"].contains(&target) {
                let what = format!("{} {target}", started.command_name);
                *commands
                    .0
                    .lock()
                    .unwrap()
                    .entry(what.trim().to_owned())
                    .or_default() += 1;
            }
        })
    }

    fn take(&self) -> Vec<String> {
        let taken = std::mem::take(&mut *self.0.lock().unwrap());
        let taken = taken.into_iter();
        taken
            .map(|(what, times)| {
                if times == 1 {
                    what
                } else {
                    format!("{times} × {what}")
                }
            })
            .collect()
    }
}

/// What each call has sent, through the store and through the application's client.
#[derive(Clone, Default)]
struct Count {
    ours: Commands,
    theirs: Commands,
    rows: Arc<Mutex<Vec<(String, String)>>>,
}

impl Count {
    /// Ends a call: whatever was sent since the last one is its own.
    fn call(&self, call: impl Into<String>) {
        let sent = [self.ours.take(), self.theirs.take()].concat();
        let row = (call.into(), sent.join(", "));
        self.rows.lock().unwrap().push(row);
    }

    /// Begins anew.
    fn clear(&self) {
        self.ours.take();
        self.theirs.take();
    }
}

/// An action that makes each call, twice.
fn does(bench: &Bench, count: &Count) -> Method {
    let count = count.clone();
    bench.action("does", move |cx, accounts| {
        let count = count.clone();
        async move {
            let again = if cx.attempt() > 1 { ", again" } else { "" };
            let once = || cx.once(&accounts);
            count.clear();
            once().update_one(ann(), less(1)).await?;
            count.call(format!("update_one{again}"));
            let full = doc! { "_id": "bob", "balance": 100 };
            once().update_one(full, less(1)).await?;
            count.call(format!("update_one that makes its condition false{again}"));
            once().insert_one(doc! { "a": 1 }).await?;
            count.call(format!("insert_one without an `_id`{again}"));
            once().insert_one(doc! { "_id": "eve" }).await?;
            count.call(format!("insert_one with an `_id`{again}"));
            let mia = doc! { "_id": "mia" };
            once()
                .update_one(mia.clone(), less(1))
                .or_insert(mia)
                .await?;
            count.call(format!("or_insert{again}"));
            if cx.attempt() > 1 {
                return Ok(());
            }
            let never = doc! { "_id": "ann", "balance": 1 };
            let unmatched = once().label("never").update_one(never, less(1)).await;
            assert_eq!(unmatched.unwrap_err().code(), "once_unmatched");
            count.call("update_one whose conditions do not hold");
            Err(ActionError::new("again"))
        }
    })
}

/// Its undo.
fn undoes(bench: &Bench, count: &Count) -> Method {
    let count = count.clone();
    bench.action("undoes", move |cx, accounts| {
        let count = count.clone();
        async move {
            let once = || cx.once(&accounts);
            count.clear();
            once().undo().update_one(ann(), less(-1)).await?;
            count.call("undo of what was applied");
            once()
                .label("not")
                .undo()
                .update_one(ann(), less(-1))
                .await?;
            count.call("undo of what was not applied");
            once().undo().delete_one(doc! {}).await?;
            count.call("undo of an insertion without an `_id`");
            once().undo().delete_one(doc! { "_id": "eve" }).await?;
            count.call("undo of an insertion with an `_id`");
            Ok(())
        }
    })
}

const EXPECTED: [(&str, &str); 15] = [
    ("update_one", "update accounts"),
    (
        "update_one that makes its condition false",
        "update accounts",
    ),
    ("insert_one without an `_id`", "update accounts"),
    ("insert_one with an `_id`", "update accounts"),
    ("or_insert", "2 × find accounts, 2 × update accounts"),
    (
        "update_one whose conditions do not hold",
        "2 × find accounts, update accounts",
    ),
    (
        "update_one, again",
        "find witnesses, find accounts, update accounts",
    ),
    (
        "update_one that makes its condition false, again",
        "find witnesses, 2 × find accounts, update accounts",
    ),
    (
        "insert_one without an `_id`, again",
        "find accounts, update accounts",
    ),
    (
        "insert_one with an `_id`, again",
        "find witnesses, find accounts, update accounts",
    ),
    (
        "or_insert, again",
        "find witnesses, find accounts, update accounts",
    ),
    (
        "undo of what was applied",
        "find witnesses, update accounts",
    ),
    (
        "undo of what was not applied",
        "find witnesses, find accounts, 2 × update accounts",
    ),
    (
        "undo of an insertion without an `_id`",
        "delete accounts, hello",
    ),
    (
        "undo of an insertion with an `_id`",
        "find witnesses, delete accounts, hello",
    ),
];

#[test]
fn the_commands_of_each_call_are_counted() {
    run_async(async {
        let mut bench = Bench::new().await;
        let count = Count::default();
        let scratch = bench.place.scratch().unwrap();
        let mut options = scratch.options().await;
        options.command_event_handler = Some(count.ours.handler());
        let store = MongoStore::new(options, scratch.name(), DEFAULT_COLLECTION);
        let mut options = scratch.options().await;
        options.command_event_handler = Some(count.theirs.handler());
        let client = Client::with_options(options).unwrap();
        bench.accounts = client.database(scratch.name()).collection("accounts");
        let first = bench.action("first", |cx, accounts| async move {
            cx.once(&accounts).update_one(ann(), less(0)).await?;
            Ok(())
        });
        let fails = bench.action("fails", |_, _| async {
            Err::<(), _>(ActionError::fatal("it cannot be"))
        });
        // With the default settings nothing is cleaned meanwhile.
        let runtime = bare("")
            .store(Arc::new(store))
            .register(first)
            .register(does(&bench, &count).options(quick().undo("undoes")))
            .register(undoes(&bench, &count))
            .register(fails)
            .build()
            .await
            .unwrap();
        runtime.spawn();
        count.clear();
        run(&runtime, "first").await.unwrap();
        count.call("the first update_one on a collection");
        let graph = Action::new("does").next([Action::new("fails")]);
        let handle = runtime.start("costs", graph, ()).await.unwrap();
        assert_eq!(handle.outcome().await.unwrap_err().code(), "undone");
        let rows = count.rows.lock().unwrap();
        for (call, sent) in &*rows {
            println!("| {call} | {sent} |");
        }
        let rows = rows.iter().map(|(call, sent)| (&**call, &**sent));
        assert_eq!(rows.skip(1).collect::<Vec<_>>(), EXPECTED);
    });
}
