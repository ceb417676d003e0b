use bson::{Bson, DateTime, JavaScriptCodeWithScope, doc};

use super::*;
use crate::{
    graph::{Plan, PlannedAction},
    machine::{NewMilestone, StartError},
    options::Mode,
};

fn nested(levels: usize) -> Bson {
    (0..levels).fold(Bson::Null, |inner, level| {
        if level % 2 == 0 {
            Bson::Array(vec![inner])
        } else {
            doc! { "x": inner }.into()
        }
    })
}

#[test]
fn a_value_of_exactly_the_limit_is_stored() {
    let value = Bson::String("x".repeat(95));
    assert_eq!(check_value("it", &value, 100, "output"), Ok(100));
    let error = check_value("it", &value, 99, "output").unwrap_err();
    assert_eq!(
        error.to_string(),
        "it would take 100 bytes, the limit `output` is 99"
    );
    assert_eq!(error.code(), "limit_size");
}

#[test]
fn depth_is_counted_and_needs_no_stack() {
    assert!(check_value("it", &nested(MAX_DEPTH), 10_000, "output").is_ok());
    let error = check_value("it", &nested(MAX_DEPTH + 1), 10_000, "output").unwrap_err();
    assert_eq!(
        error.to_string(),
        "it would be nested more than 90 levels deep, which is the limit `depth`"
    );
    let deep = nested(2_000);
    assert_eq!(
        check_value("it", &deep, 10_000, "output").unwrap_err(),
        error
    );
    let scope = doc! { "x": nested(MAX_DEPTH) };
    let code = Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
        code: String::new(),
        scope,
    });
    assert_eq!(
        check_value("it", &code, 10_000, "output").unwrap_err(),
        error
    );
}

#[test]
fn a_key_that_bson_cannot_hold_is_named() {
    let value = doc! { "a": [{ "b\0c": 1 }] }.into();
    let error = check_value("the output of `a`", &value, 1000, "output").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the output of `a` would have the key \"b\\0c\": a key cannot hold a NUL character"
    );
    let odd = doc! { "": 1, "a.b": 2, "$set": 3 }.into();
    assert!(check_value("it", &odd, 1000, "output").is_ok());
}

fn start(change: impl FnOnce(&mut NewMilestone), limits: &Limits) -> Result<(), StartError> {
    let plan = Plan::new(vec![PlannedAction::new("a", Mode::Plain)]).unwrap();
    let mut new = NewMilestone::new("T", plan);
    change(&mut new);
    MilestoneRecord::new(new, DateTime::from_millis(0), limits).map(drop)
}

#[test]
fn parameters_labels_and_the_whole_are_checked_at_the_start() {
    let limits = Limits::new().parameters(1000).document(3000);
    let text = |bytes| "x".repeat(bytes);
    assert_eq!(start(|_| (), &limits), Ok(()));
    let error = start(|new| new.parameters = text(1000).into(), &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the parameters of `T` would take 1005 bytes, the limit `parameters` is 1000"
    );
    let error = start(
        |new| drop(new.labels.insert("l".to_owned(), text(3000))),
        &limits,
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the document of `T` would take 42"),
        "{error}"
    );
    for name in ["", "$a", "a.b", "a\0"] {
        let label = |new: &mut NewMilestone| drop(new.labels.insert(name.to_owned(), text(1)));
        assert_eq!(
            start(label, &limits).unwrap_err().code(),
            "graph_name",
            "{name:?}"
        );
    }
    for id in ["", "a\0", &text(513)] {
        let error = start(|new| new.id = id.into(), &limits).unwrap_err();
        assert_eq!(error.code(), "graph_name", "{id:?}");
    }
}

#[test]
fn many_edges_count() {
    let wide = |edges: usize| {
        let before = (0..edges).map(|index| PlannedAction::new(index.to_string(), Mode::Plain));
        let last = PlannedAction::new("last", Mode::Plain).after(0..edges);
        Plan::new(before.chain([last]).collect()).unwrap()
    };
    let limits = Limits::new().document(30_000);
    assert_eq!(start(|new| new.plan = wide(10), &limits), Ok(()));
    assert_eq!(
        start(|new| new.plan = wide(500), &limits)
            .unwrap_err()
            .code(),
        "limit_size"
    );
}

#[test]
fn commands_are_bounded() {
    let limits = Limits::new();
    let command = |order| Command {
        id: "1".to_owned(),
        order,
        by: "me".to_owned(),
        at: DateTime::from_millis(0),
    };
    let pause = |bytes| {
        command(Order::Pause {
            reason: "x".repeat(bytes),
        })
    };
    assert!(check_command(&pause(4000), &limits).is_ok());
    assert!(check_command(&pause(5000), &limits).is_err());
    let resolve = |output| {
        command(Order::Resolve {
            action: "a".to_owned(),
            attempt: None,
            applied: true,
            output,
        })
    };
    assert!(check_command(&resolve(nested(90)), &limits).is_ok());
    assert!(check_command(&resolve(nested(91)), &limits).is_err());
    assert!(check_command(&resolve("x".repeat(2 << 20).into()), &limits).is_err());
}
