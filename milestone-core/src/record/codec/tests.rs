use bson::{
    Binary, DateTime, Decimal128, JavaScriptCodeWithScope, Regex, Timestamp, doc, oid::ObjectId,
    spec::BinarySubtype,
};

use super::*;
use crate::{
    graph::{Plan, PlannedAction},
    limits::Limits,
    machine::NewMilestone,
    options::Mode,
    record::Command,
};

fn record() -> MilestoneRecord {
    let planned = |name: &str| PlannedAction::new(name, Mode::Plain);
    let plan = Plan::new(vec![planned("a"), planned("b").after([0])]).unwrap();
    MilestoneRecord::new(
        NewMilestone::new("T", plan),
        DateTime::from_millis(0),
        &Limits::new(),
    )
    .unwrap()
}

/// What users may store, with documents that extended JSON would take for something else.
fn values() -> Vec<Bson> {
    let documents = [
        doc! {},
        doc! { "": 1, "a.b": { "$set": null }, "$inc": [] },
        doc! { "$oid": "x" },
        doc! { "$oid": "63ceed18f71dda7d8cf21e8e" },
        doc! { "$numberLong": "5" },
        doc! { "$numberInt": "x" },
        doc! { "$numberDouble": "NaN" },
        doc! { "$numberDecimal": "1" },
        doc! { "$date": 5_i64 },
        doc! { "$date": "tomorrow" },
        doc! { "$binary": { "base64": "AA==", "subType": "00" } },
        doc! { "$uuid": "x" },
        doc! { "$symbol": "s" },
        doc! { "$code": "c", "$scope": {} },
        doc! { "$timestamp": { "t": 1, "i": 2 } },
        doc! { "$regularExpression": { "pattern": "a", "options": "" } },
        doc! { "$minKey": 1 },
        doc! { "$undefined": true },
        doc! { "$ref": "a", "$id": 1 },
        doc! { "deep": [{ "$oid": "x" }] },
    ];
    let scalars = [
        Bson::Null,
        Bson::Undefined,
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Double(f64::NEG_INFINITY),
        Bson::Double(-0.0),
        Bson::Int32(i32::MIN),
        Bson::Int64(i64::MAX),
        Bson::String("\0 ü".to_owned()),
        Bson::Symbol("s".to_owned()),
        Bson::JavaScriptCode("c".to_owned()),
        Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
            code: "c".to_owned(),
            scope: doc! { "$oid": "x" },
        }),
        Bson::DateTime(DateTime::MAX),
        Bson::DateTime(DateTime::MIN),
        Bson::Timestamp(Timestamp {
            time: 1,
            increment: 2,
        }),
        Bson::ObjectId(ObjectId::from_bytes([7; 12])),
        Bson::Decimal128(Decimal128::from_bytes([3; 16])),
        Bson::Boolean(true),
        Bson::Array(vec![doc! { "$date": 5_i64 }.into()]),
        Bson::Binary(Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![1; 16],
        }),
        Bson::Binary(Binary {
            subtype: BinarySubtype::UserDefined(0x80),
            bytes: Vec::new(),
        }),
        Bson::RegularExpression(Regex {
            pattern: "a".try_into().unwrap(),
            options: "i".try_into().unwrap(),
        }),
    ];
    documents
        .into_iter()
        .map(Bson::Document)
        .chain(scalars)
        .collect()
}

#[test]
fn values_of_users_are_opaque() {
    for value in values() {
        let mut record = record();
        record.parameters = value.clone();
        record.actions[1].output = Some(value.clone());
        let order = Order::Resolve {
            action: "a".to_owned(),
            attempt: None,
            applied: true,
            output: value.clone(),
        };
        record.inbox = ["1", "2"]
            .map(|id| Command {
                id: id.to_owned(),
                order: if id == "1" {
                    Order::Resume
                } else {
                    order.clone()
                },
                by: "me".to_owned(),
                at: DateTime::from_millis(0),
            })
            .to_vec();
        let document = record.to_document().unwrap();
        assert_eq!(document.get("parameters"), Some(&value));
        assert_eq!(
            MilestoneRecord::from_document(document.clone()).as_ref(),
            Ok(&record)
        );
        let bytes = document.to_vec().unwrap();
        assert_eq!(record.to_vec().unwrap(), bytes, "{value}");
        assert_eq!(MilestoneRecord::from_slice(&bytes), Ok(record));
    }
}

#[test]
fn an_output_of_null_is_an_output() {
    let mut record = record();
    record.actions[0].output = Some(Bson::Null);
    let document = record.to_document().unwrap();
    let actions = document.get_array("actions").unwrap();
    let has = |index: usize| actions[index].as_document().unwrap().contains_key("output");
    assert!(has(0) && !has(1));
    assert_eq!(MilestoneRecord::from_document(document), Ok(record));
}

#[test]
fn fields_stand_in_the_order_of_the_schema() {
    let mut record = record();
    record.actions[0].output = Some(7.into());
    record.actions[0].undo = None;
    let document = record.to_document().unwrap();
    let keys: Vec<&String> = document.keys().take(5).collect();
    assert_eq!(keys, ["_id", "type", "schema", "parameters", "state"]);
}

type Change<'c> = &'c dyn Fn(&mut Document);

#[test]
fn what_cannot_be_read_is_named() {
    let reason = |change: Change<'_>| {
        let mut document = record().to_document().unwrap();
        document.insert("_id", "it");
        change(&mut document);
        MilestoneRecord::from_document(document)
            .expect_err("not to be read")
            .to_string()
    };
    let action = |key: &'static str, value: Bson| {
        move |document: &mut Document| {
            let actions = document.get_array_mut("actions").unwrap();
            let action = actions[0].as_document_mut().unwrap();
            action.insert(key, value.clone());
        }
    };
    let cases: [(&str, Change<'_>); 11] = [
        (
            "its schema is 2, this version reads 1 and lower",
            &|document| drop(document.insert("schema", 2_i64)),
        ),
        ("it has no `schema`", &|document| {
            drop(document.remove("schema"));
        }),
        ("missing field `parameters`", &|document| {
            drop(document.remove("parameters"));
        }),
        (
            "its `rev` is 9223372036854775807, which nothing counts up to",
            &|document| drop(document.insert("rev", i64::MAX)),
        ),
        (
            "its `actions.0.attempts` is -1, which nothing counts up to",
            &action("attempts", Bson::from(-1_i64)),
        ),
        ("it has no actions", &|document| {
            drop(document.insert("actions", Vec::<Bson>::new()));
        }),
        (
            "`actions.0.after` names an action that does not come before it",
            &action("after", vec![Bson::from(0)].into()),
        ),
        (
            "`actions.0` needs a method to be an action",
            &action("method", Bson::Null),
        ),
        (
            "`actions.0` needs a method to be an action",
            &action("kind", "fork".into()),
        ),
        ("unknown variant `timer`", &action("kind", "timer".into())),
        ("unknown variant `lost`", &action("state", "lost".into())),
    ];
    for (expected, change) in cases {
        let reason = reason(change);
        assert!(
            reason.starts_with("the milestone it cannot be read: ") && reason.contains(expected),
            "{reason}"
        );
    }
    assert!(MilestoneRecord::from_slice(b"no document").is_err());
}

#[test]
fn numbers_that_mongosh_wrote_are_read() {
    let mut document = record().to_document().unwrap();
    document.insert("rev", 5_i32);
    document.insert("schema", 1_i64);
    assert_eq!(MilestoneRecord::from_document(document).unwrap().rev, 5);
}
