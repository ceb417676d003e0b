//! The cases S01 to S05 of MongoMilestone, and S06 with the record.

use bson::{Bson, DateTime, doc};

use super::*;
use crate::{
    limits::Limits,
    machine::{NewMilestone, StartError},
    record::{ActionKind, ActionState, MilestoneRecord},
};

fn plan(action: Action) -> Plan {
    action
        .into_plan(|_| Some(Resolved::idempotent()))
        .expect("a valid graph")
}

fn error(action: Action) -> GraphError {
    action
        .into_plan(|_| None)
        .expect_err("a graph that is not valid")
}

/// Each action with the names of those it waits for.
fn waits(plan: &Plan) -> Vec<(&str, Vec<&str>)> {
    let actions = plan.actions();
    let names = |action: &PlannedAction| {
        let after = action.after.iter();
        after.map(|index| actions[*index].name.as_str()).collect()
    };
    let names: Vec<Vec<&str>> = actions.iter().map(names).collect();
    actions
        .iter()
        .map(|action| action.name.as_str())
        .zip(names)
        .collect()
}

fn record(new: NewMilestone) -> Result<MilestoneRecord, StartError> {
    MilestoneRecord::new(new, DateTime::from_millis(0), &Limits::new())
}

#[test]
fn s01_an_action_of_only_a_type() {
    let plan = plan(Action::new("op-1"));
    let record = record(NewMilestone::new("Op", plan)).expect("a record");
    let [action] = record.actions.as_slice() else {
        panic!("one action: {:?}", record.actions)
    };
    assert_eq!(
        (action.name.as_str(), action.method.as_deref()),
        ("op-1", Some("op-1"))
    );
    assert_eq!(
        (action.state, action.kind),
        (ActionState::Ready, ActionKind::Action)
    );
    assert!(action.after.is_empty() && record.report.is_empty());
}

#[test]
fn s01_type_and_method_can_differ() {
    let plan = plan(
        Action::new("first")
            .method("notify")
            .done(Action::new("second").method("notify")),
    );
    let methods = plan.actions().iter().map(|action| action.method.as_deref());
    assert_eq!(methods.collect::<Vec<_>>(), [Some("notify"); 2]);
}

#[test]
fn s02_strings_stand_for_actions() {
    let plan = plan(
        Action::new("op-1")
            .next(["op-2.1", "op-2.2"])
            .done(String::from("op-3")),
    );
    let expected = [
        ("op-1", vec![]),
        ("op-2.1", vec!["op-1"]),
        ("op-2.2", vec!["op-1"]),
        ("op-3", vec!["op-2.1", "op-2.2"]),
    ];
    assert_eq!(waits(&plan), expected);
}

#[test]
fn s03_forks_at_any_depth() {
    let inner = Action::fork("inner").next(["c", "d"]).done("e");
    let plan = plan(
        Action::fork("outer")
            .next([Action::new("a"), Action::new("b").next([inner])])
            .done("f"),
    );
    let expected = [
        ("outer", vec![]),
        ("a", vec!["outer"]),
        ("b", vec!["outer"]),
        ("inner", vec!["b"]),
        ("c", vec!["inner"]),
        ("d", vec!["inner"]),
        ("e", vec!["c", "d"]),
        ("f", vec!["a", "e"]),
    ];
    assert_eq!(waits(&plan), expected);
    let record = record(NewMilestone::new("Forks", plan)).expect("a record");
    let (outer, inner) = (&record.actions[0], &record.actions[3]);
    assert_eq!((outer.state, outer.attempts), (ActionState::Completed, 0));
    assert_eq!(
        (inner.state, inner.kind),
        (ActionState::Pending, ActionKind::Fork)
    );
    assert_eq!(record.actions[1].state, ActionState::Ready);
}

#[test]
fn s03_a_fork_with_nothing_next_is_named() {
    let name = || "nothing".to_owned();
    assert_eq!(
        error(Action::fork("nothing")),
        GraphError::EmptyFork { name: name() }
    );
    assert_eq!(
        error(Action::new("a").done(Action::fork("nothing").done("b"))),
        GraphError::EmptyFork { name: name() }
    );
}

#[test]
fn s04_names_that_cannot_be() {
    let reason = |action| match error(action) {
        GraphError::Name { reason, .. } => reason,
        other => panic!("another error: {other}"),
    };
    assert_eq!(
        reason(Action::new("")),
        "a name needs at least one character"
    );
    assert_eq!(
        reason(Action::new("milestone")),
        "the parameters go by that name in an attempt's input"
    );
    assert_eq!(
        reason(Action::new("$set")),
        "names that start with `$` are the database's"
    );
    assert_eq!(
        reason(Action::new("a").next(["b\0"])),
        "a name cannot hold a NUL character"
    );
    assert_eq!(
        reason(Action::new("a".repeat(257))),
        "a name may have 256 bytes"
    );
    assert_eq!(
        reason(Action::new("a").method("")),
        "a name needs at least one character"
    );
    assert_eq!(
        reason(Action::new("a").undo("")),
        "a name needs at least one character"
    );
    assert_eq!(
        reason(Action::new("a").queue("")),
        "a name needs at least one character"
    );
    assert_eq!(
        error(Action::new("a").next(["b", "a"])),
        GraphError::Twice {
            name: "a".to_owned()
        }
    );
}

#[test]
fn s04_a_milestone_without_a_type_or_without_an_action() {
    let error = record(NewMilestone::new("", plan(Action::new("a")))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a milestone type cannot be named ``: a name needs at least one character"
    );
    assert_eq!(Plan::new(Vec::new()), Err(GraphError::Empty));
}

/// A chain, built from its end.
fn chain(count: usize) -> Action {
    let last = Action::new(count.to_string());
    (1..count).rev().fold(last, |rest, number| {
        Action::new(number.to_string()).next([rest])
    })
}

#[test]
fn s05_the_deepest_chain() {
    let plan = plan(chain(MAX_ACTIONS));
    let actions = plan.actions();
    assert_eq!(
        (actions.len(), actions[0].name.as_str()),
        (MAX_ACTIONS, "1")
    );
    assert!(
        actions
            .iter()
            .enumerate()
            .skip(1)
            .all(|(index, action)| action.after == [index - 1])
    );
}

#[test]
fn s05_a_deeper_one_is_refused() {
    assert_eq!(
        error(chain(MAX_ACTIONS + 1)),
        GraphError::TooMany {
            count: MAX_ACTIONS + 1
        }
    );
    assert_eq!(
        error(chain(1_000_000)),
        GraphError::TooMany { count: 1_000_000 }
    );
}

#[test]
fn s05_a_chain_built_from_its_beginning_of_dones() {
    let action = (2..=MAX_ACTIONS).fold(Action::new("1"), |before, number| {
        before.done(number.to_string())
    });
    let plan = plan(action);
    assert!(
        plan.actions()
            .iter()
            .enumerate()
            .skip(1)
            .all(|(index, action)| action.after == [index - 1])
    );
}

#[test]
fn s06_parameters_of_any_kind() {
    for parameters in [
        Bson::Null,
        "text".into(),
        7.into(),
        1.5.into(),
        doc! { "a.b": { "$c": [null, ""] } }.into(),
    ] {
        let new = NewMilestone {
            parameters: parameters.clone(),
            ..NewMilestone::new("Any", plan(Action::new("a")))
        };
        let record = record(new).expect("a record");
        let read = MilestoneRecord::from_document(record.to_document().expect("a document"));
        assert_eq!(read.expect("the record").parameters, parameters);
    }
}

#[test]
fn next_may_come_after_done() {
    let plan = plan(
        Action::new("a")
            .done("z")
            .next(["b"])
            .done("zz")
            .next(["c"]),
    );
    let expected = [
        ("a", vec![]),
        ("b", vec!["a"]),
        ("c", vec!["a"]),
        ("z", vec!["b", "c"]),
        ("zz", vec!["z"]),
    ];
    assert_eq!(waits(&plan), expected);
}

#[test]
fn what_the_action_leaves_open_the_method_says() {
    let resolve = |method: &str| {
        (method == "known").then(|| Resolved {
            verify: None,
            mode: Mode::Idempotent,
            undo: Some("undo".to_owned()),
            queue: Some("slow".to_owned()),
        })
    };
    let own = Action::new("known")
        .mode(Mode::Plain)
        .undo("own")
        .queue("fast");
    let action = Action::fork("fork").next([
        Action::new("first").method("known"),
        own,
        Action::new("unknown"),
    ]);
    let plan = action.into_plan(resolve).expect("a valid graph");
    let options = plan
        .actions()
        .iter()
        .map(|action| (action.mode, action.undo.as_deref(), action.queue.as_deref()));
    let expected = [
        (Mode::Plain, None, None),
        (Mode::Idempotent, Some("undo"), Some("slow")),
        (Mode::Plain, Some("own"), Some("fast")),
        (Mode::Plain, None, None),
    ];
    assert_eq!(options.collect::<Vec<_>>(), expected);
}

#[test]
fn a_fork_has_nothing_to_undo() {
    let fork = Action::fork("fork").next(["a"]).undo("u");
    assert_eq!(
        error(fork),
        GraphError::ForkUndo {
            name: "fork".to_owned()
        }
    );
}
