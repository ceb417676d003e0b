//! Milestones that run without a failure: what actions see, in which order they run, and what is stored.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::sync::Arc;

use bson::{Bson, bson, doc, oid::ObjectId};
use milestone_runtime::{
    Method,
    action::{ActionError, Call},
    core::record::{ActionState, Status},
    dynamic::Action,
    prelude::*,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    look::{action, attempts, successes, until},
    on_stores,
    place::Place,
};
use tokio::sync::{Barrier, Notify};

on_stores!(memory, sqlite, mongodb:
    s06_parameters_of_any_kind,
    s07_bank_transfer,
    s07_bank_transfer_with_the_macros,
    s08_done_sees_the_parameters_and_all_outputs,
    s09_siblings_overlap_and_do_not_see_each_other,
    s09_done_waits_for_whole_subtrees_and_sees_them,
    s10_complete_before_its_next_runs,
    s11_each_action_has_its_own_input,
    s12_nothing_is_a_null_output,
    s12_a_function_without_a_return_type,
    several_last_actions_give_a_tuple,
    a_graph_without_a_root,
);

/// An action that notes what it sees of these others, and gives its own name.
fn spy(ledger: &Ledger, name: &'static str, others: &'static [&'static str]) -> Method {
    let ledger = ledger.clone();
    Method::new(name, move |call: Call| {
        let seen: Vec<_> = others
            .iter()
            .filter(|other| call.output(other).is_some())
            .copied()
            .collect();
        ledger.note(format!("{name} sees {}", seen.join(" ")));
        async move { Ok::<_, ActionError>(name) }
    })
    .options(quick())
}

async fn s06_parameters_of_any_kind(place: Place) {
    let echo = Method::new("echo", |call: Call| async move {
        Ok::<_, ActionError>(call.parameters().clone())
    });
    let runtime = place.builder().register(echo).build().await.unwrap();
    runtime.spawn();
    let values = [
        Bson::Null,
        "a string".into(),
        42_i32.into(),
        i64::MAX.into(),
        2.5.into(),
        true.into(),
        bson!([1, "two", null]),
        bson!({ "from": "a", "to": { "iban": "DE00", "dotted.key": 1, "$dollar": 2, "": 3 } }),
        ObjectId::new().into(),
        bson::DateTime::from_millis(1).into(),
    ];
    for value in values {
        let handle = runtime.start("echo", "echo", value.clone()).await.unwrap();
        let outcome = handle.outcome().await.unwrap();
        assert_eq!(outcome.get("echo"), Some(&value));
        let record = handle.record().await.unwrap();
        assert_eq!(record.parameters, value);
    }
    let none = runtime.start("echo", "echo", ()).await.unwrap();
    assert_eq!(none.outcome().await.unwrap(), doc! { "echo": null });
}

async fn s07_bank_transfer(place: Place) {
    let parameters = doc! { "from": "a", "to": "b", "amount": 100 };
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let step = |name: &'static str, output: Bson| {
        let seen = Arc::clone(&seen);
        Method::new(name, move |call: Call| {
            let input = (call.parameters().clone(), call.output("debit").cloned());
            seen.lock().unwrap().push((name, input));
            let output = output.clone();
            async move { Ok::<_, ActionError>(output) }
        })
    };
    let runtime = place
        .builder()
        .register(step("debit", bson!({ "balance": 900 })))
        .register(step("credit", bson!({ "balance": 1100 })))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("debit").next(["credit"]);
    let transfer = runtime
        .start("transfer", graph, parameters.clone())
        .await
        .unwrap();

    let outcome = transfer.outcome().await.unwrap();
    let expected = doc! { "debit": { "balance": 900 }, "credit": { "balance": 1100 } };
    assert_eq!(outcome, expected);
    let parameters = Bson::from(parameters);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            ("debit", (parameters.clone(), None)),
            (
                "credit",
                (parameters.clone(), Some(bson!({ "balance": 900 })))
            ),
        ]
    );
    let record = transfer.record().await.unwrap();
    assert_eq!(record.kind, "transfer");
    assert_eq!(record.state, Status::Completed);
    assert!(record.begin_date.is_some() && record.end_date >= record.begin_date);
    assert_eq!(record.outputs(), expected);
    assert_eq!(record.input(0), doc! { "milestone": parameters.clone() });
    assert_eq!(
        record.input(1),
        doc! { "milestone": parameters, "debit": { "balance": 900 } }
    );
    assert_eq!(successes(&record, "debit"), [Some(true)]);
    assert_eq!(successes(&record, "credit"), [Some(true)]);
    assert!(record.lease.is_none() && record.next.is_none() && record.due.is_empty());
}

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(debit -> credit)]
struct Transfer {
    amount: i64,
}

#[action(idempotent)]
async fn debit(Params(t): Params<Transfer>, bank: State<i64>) -> Result<i64, ActionError> {
    Ok(*bank - t.amount)
}

#[action(idempotent)]
async fn credit(
    Params(t): Params<Transfer>,
    Output(rest): Output<debit>,
    cx: Context,
) -> Result<(i64, String), ActionError> {
    Ok((rest + 2 * t.amount, cx.idempotency_key()))
}

async fn s07_bank_transfer_with_the_macros(place: Place) {
    let runtime = place
        .builder()
        .actions(["debit", "credit"])
        .state(1000_i64)
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = Transfer { amount: 100 }.start(&runtime).await.unwrap();
    let (balance, key) = handle.outcome().await.unwrap();
    assert_eq!(balance, 1100);
    assert_eq!(key, format!("{}/credit", handle.id()));

    let again = Transfer::handle(&runtime, handle.id().clone());
    assert_eq!(again.outcome().await.unwrap(), (balance, key));
    assert_eq!(again.status().await.unwrap(), Status::Completed);

    let in_place =
        milestone!(debit -> credit).start_with_id(&runtime, "one", Transfer { amount: 7 });
    let (balance, key) = in_place.await.unwrap().outcome().await.unwrap();
    assert_eq!((balance, key.as_str()), (1007, "one/credit"));
    assert_eq!(runtime.get("one").await.unwrap().unwrap().kind, "Transfer");
}

async fn s08_done_sees_the_parameters_and_all_outputs(place: Place) {
    const OTHERS: &[&str] = &["do-debit", "do-credit", "confirm-transfer"];
    let ledger = Ledger::new();
    let done = {
        let ledger = ledger.clone();
        Method::new("update-balances", move |call: Call| {
            let outputs: Vec<_> = OTHERS.iter().filter_map(|name| call.output(name)).collect();
            ledger.note(format!("{} {outputs:?}", call.parameters()));
            async move { Ok::<_, ActionError>("done") }
        })
    };
    let runtime = place
        .builder()
        .register(ledger.gives("do-debit", 1))
        .register(ledger.gives("do-credit", 2))
        .register(ledger.gives("confirm-transfer", 3))
        .register(done)
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("do-debit")
        .next(["do-credit", "confirm-transfer"])
        .done("update-balances");
    let handle = runtime.start("transfer", graph, "p").await.unwrap();
    handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!(record.report.len(), 4);
    assert!(
        record
            .report
            .iter()
            .all(|attempt| attempt.success == Some(true))
    );
    assert_eq!(
        ledger.entries().last().unwrap(),
        "\"p\" [Int32(1), Int32(2), Int32(3)]"
    );
}

async fn s09_siblings_overlap_and_do_not_see_each_other(place: Place) {
    let ledger = Ledger::new();
    // Each of the two waits for the other one, so they end only if they overlap.
    let both = Arc::new(Barrier::new(2));
    let sibling = |name: &'static str, other: &'static str| {
        let (both, ledger) = (Arc::clone(&both), ledger.clone());
        Method::new(name, move |call: Call| {
            let (both, ledger) = (Arc::clone(&both), ledger.clone());
            async move {
                both.wait().await;
                ledger.note(format!(
                    "{name} {:?} {:?}",
                    call.output("op-1"),
                    call.output(other)
                ));
                both.wait().await;
                Ok::<_, ActionError>(name)
            }
        })
    };
    let runtime = place
        .builder()
        .register(ledger.gives("op-1", 1))
        .register(sibling("op-2.1", "op-2.2"))
        .register(sibling("op-2.2", "op-2.1"))
        .register(spy(&ledger, "op-3", &["op-1", "op-2.1", "op-2.2"]))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("op-1").next(["op-2.1", "op-2.2"]).done("op-3");
    let handle = runtime.start("fan", graph, ()).await.unwrap();
    let outcome = handle.outcome().await.unwrap();
    let expected = doc! { "op-1": 1, "op-2.1": "op-2.1", "op-2.2": "op-2.2", "op-3": "op-3" };
    assert_eq!(outcome, expected);
    let mut entries = ledger.entries();
    entries[1..3].sort();
    assert_eq!(
        entries,
        [
            "op-1",
            "op-2.1 Some(Int32(1)) None",
            "op-2.2 Some(Int32(1)) None",
            "op-3 sees op-1 op-2.1 op-2.2",
        ]
    );
}

async fn s09_done_waits_for_whole_subtrees_and_sees_them(place: Place) {
    const OTHERS: &[&str] = &["root", "left", "left.deep", "left.deep.end", "right"];
    let ledger = Ledger::new();
    let mut builder = place.builder().register(spy(&ledger, "done", OTHERS));
    for name in OTHERS {
        builder = builder.register(ledger.gives(name, *name));
    }
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let deep = Action::new("left.deep").done("left.deep.end");
    let left = Action::new("left").next([deep]);
    let graph = Action::new("root")
        .next([left, Action::new("right")])
        .done("done");
    let handle = runtime.start("tree", graph, ()).await.unwrap();
    handle.outcome().await.unwrap();
    let entries = ledger.entries();
    assert_eq!(
        entries.last().unwrap(),
        "done sees root left left.deep left.deep.end right",
        "{entries:?}"
    );
    assert_eq!(entries.len(), 6);
}

async fn s10_complete_before_its_next_runs(place: Place) {
    let ledger = Ledger::new();
    let go = Arc::new(Notify::new());
    let slow = {
        let go = Arc::clone(&go);
        Method::new("op-2", move |_| {
            let go = Arc::clone(&go);
            async move {
                go.notified().await;
                Ok::<_, ActionError>(2)
            }
        })
    };
    let runtime = place
        .builder()
        .register(ledger.gives("op-1", 1))
        .register(slow)
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::new("op-1").next(["op-2"]);
    let handle = runtime.start("chain", graph, ()).await.unwrap();
    let record = until(&runtime, handle.id(), |record| {
        action(record, "op-1").state == ActionState::Completed
    })
    .await;
    assert_eq!(action(&record, "op-1").output, Some(Bson::Int32(1)));
    assert_eq!(successes(&record, "op-1"), [Some(true)]);
    assert_eq!(action(&record, "op-2").output, None);
    assert_eq!(record.state, Status::Running);
    go.notify_one();
    handle.outcome().await.unwrap();
}

async fn s11_each_action_has_its_own_input(place: Place) {
    let both = Arc::new(Barrier::new(2));
    let changer = |name: &'static str| {
        let both = Arc::clone(&both);
        Method::new(name, move |call: Call| {
            let both = Arc::clone(&both);
            async move {
                let Params(mut list) = call.extract::<Params<Vec<String>>>()?;
                list.push(name.to_owned());
                both.wait().await;
                let Params(fresh) = call.extract::<Params<Vec<String>>>()?;
                Ok::<_, ActionError>((list, fresh))
            }
        })
    };
    let runtime = place
        .builder()
        .register(changer("a"))
        .register(changer("b"))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::fork("both").next(["a", "b"]);
    let handle = runtime.start("copies", graph, ["given"]).await.unwrap();
    let outcome = handle.outcome().await.unwrap();
    let expected = doc! { "a": [["given", "a"], ["given"]], "b": [["given", "b"], ["given"]] };
    assert_eq!(outcome, expected);
    assert_eq!(handle.record().await.unwrap().parameters, bson!(["given"]));
}

async fn s12_nothing_is_a_null_output(place: Place) {
    let ledger = Ledger::new();
    let nothing = {
        let ledger = ledger.clone();
        Method::new("nothing", move |_| {
            ledger.note("nothing");
            async move { Ok::<_, ActionError>(()) }
        })
        .options(quick())
    };
    let runtime = place.builder().register(nothing).build().await.unwrap();
    runtime.spawn();
    let handle = runtime.start("nothing", "nothing", ()).await.unwrap();
    assert_eq!(handle.outcome().await.unwrap(), doc! { "nothing": null });
    let record = handle.record().await.unwrap();
    assert_eq!(action(&record, "nothing").output, Some(Bson::Null));
    assert_eq!(attempts(&record, "nothing").len(), 1);
    assert_eq!(ledger.entries(), ["nothing"]);
}

#[action(idempotent)]
async fn mute() {}

async fn s12_a_function_without_a_return_type(place: Place) {
    let runtime = place.builder().actions(["mute"]).build().await.unwrap();
    runtime.spawn();
    let handle = milestone!(mute).start(&runtime, ()).await.unwrap();
    let () = handle.outcome().await.unwrap();
    let record = handle.record().await.unwrap();
    assert_eq!(action(&record, "mute").output, Some(Bson::Null));
    assert_eq!(record.report.len(), 1);
}

#[action(idempotent)]
async fn one() -> Result<i32, ActionError> {
    Ok(1)
}

#[action(idempotent)]
async fn two() -> Result<String, ActionError> {
    Ok("two".to_owned())
}

async fn several_last_actions_give_a_tuple(place: Place) {
    let runtime = place
        .builder()
        .actions(["mute", "one", "two"])
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = milestone!(mute -> (one, two))
        .start(&runtime, ())
        .await
        .unwrap();
    let (one, two): (i32, String) = handle.outcome().await.unwrap();
    assert_eq!((one, two.as_str()), (1, "two"));
}

async fn a_graph_without_a_root(place: Place) {
    let runtime = place
        .builder()
        .actions(["mute", "one", "two"])
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let handle = milestone!((one, two) -> mute)
        .start(&runtime, ())
        .await
        .unwrap();
    let () = handle.outcome().await.unwrap();
    assert_eq!(handle.record().await.unwrap().report.len(), 3);
}
