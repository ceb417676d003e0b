use bson::{Document, doc, oid::ObjectId};

use super::*;

fn patch(set: &[(&str, Bson)], unset: &[&str]) -> Patch {
    Patch::for_tests(
        set.iter()
            .map(|(path, value)| ((*path).to_owned(), value.clone()))
            .collect(),
        unset.iter().map(|path| (*path).to_owned()).collect(),
        None,
        false,
    )
}

/// Both ways give the same bytes, or the same error.
fn both(patch: &Patch, document: &Document) -> Result<Document, String> {
    let bytes = patch.apply_to_bytes(&document.to_vec().unwrap(), 7);
    let mut applied = document.clone();
    match patch.apply_to(&mut applied, 7) {
        Ok(()) => {
            let bytes = bytes.unwrap_or_else(|error| panic!("{error}, for {patch:?}"));
            assert_eq!(bytes, applied.to_vec().unwrap(), "{patch:?}");
            Ok(applied)
        }
        Err(error) => {
            let other = bytes.expect_err("the document has no such path");
            assert_eq!(other.to_string(), error.to_string());
            Err(error.to_string())
        }
    }
}

#[test]
fn fields_keep_their_place_and_new_ones_come_behind() {
    let document = doc! {
        "_id": 1, "state": "running", "rev": 6_i64, "later": { "unknown": [1, { "a": 2 }] }, "gone": true,
        "actions": [{ "n": 0 }, { "n": 1, "undo": { "state": "none", "at": 5 } }, 3], "last": "x",
    };
    let patch = patch(
        &[
            ("state", "completed".into()),
            ("actions.1.undo.state", "done".into()),
            ("actions.1.output", Bson::Null),
            ("actions.0.n", doc! { "deep": [] }.into()),
            ("new", 5_i64.into()),
            ("also", vec![Bson::from(1), "b".into()].into()),
        ],
        &["gone", "actions.1.undo.at", "never"],
    )
    .attempt_for_tests(doc! { "number": 1 }.into());
    let applied = both(&patch, &document).unwrap();
    let keys: Vec<&str> = applied.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "_id", "state", "rev", "later", "actions", "last", "also", "new", "report"
        ]
    );
    let again = patch.attempt_for_tests(doc! { "number": 2 }.into());
    let report = both(&again, &applied).unwrap();
    let numbers: Vec<i32> = report
        .get_array("report")
        .unwrap()
        .iter()
        .map(|attempt| attempt.as_document().unwrap().get_i32("number").unwrap())
        .collect();
    assert_eq!(numbers, [2, 1, 1]);
}

#[test]
fn lists_of_more_than_ten_items_keep_their_order() {
    let items: Vec<Bson> = (0..25).map(|n| doc! { "n": n }.into()).collect();
    let document = doc! { "actions": items.clone(), "report": items };
    let patch = patch(
        &[
            ("actions.2.n", 100.into()),
            ("actions.10.n", 101.into()),
            ("actions.24.n", 102.into()),
        ],
        &[],
    )
    .attempt_for_tests(doc! { "n": 1 }.into());
    both(&patch, &document).unwrap();
}

#[test]
fn a_report_that_is_no_list_is_replaced() {
    let patch = patch(&[], &[]).attempt_for_tests(doc! { "n": 1 }.into());
    both(&patch, &doc! { "report": 3, "a": 1 }).unwrap();
    let mut replaced = patch;
    replaced.replace_report(vec![doc! { "n": 9 }.into()]);
    both(&replaced, &doc! { "report": [1, 2], "a": 1 }).unwrap();
    both(&replaced, &doc! { "a": 1 }).unwrap();
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    let document = doc! { "actions": [{ "a": 1 }, 5], "text": "x" };
    for path in [
        "actions.2.a",
        "actions.1.a",
        "actions.x.a",
        "actions.0.undo.state",
        "actions.0.a.b",
        "actions.0",
        "text.a",
        "none.a.b",
    ] {
        let set = both(&patch(&[(path, 1.into())], &[]), &document);
        assert_eq!(set, Err(format!("there is no `{path}` in the document")));
        assert!(both(&patch(&[], &[path]), &document).is_err());
    }
}

#[test]
fn every_kind_of_value_is_written() {
    let values = [
        Bson::Undefined,
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Double(f64::NAN),
        Bson::String("\0 ü".to_owned()),
        Bson::Symbol("s".to_owned()),
        Bson::JavaScriptCode("c".to_owned()),
        Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
            code: "c".to_owned(),
            scope: doc! { "a": 1 },
        }),
        Bson::Timestamp(bson::Timestamp {
            time: 1,
            increment: 2,
        }),
        Bson::ObjectId(ObjectId::from_bytes([7; 12])),
        Bson::Decimal128(bson::Decimal128::from_bytes([3; 16])),
        Bson::Boolean(false),
        Bson::DateTime(bson::DateTime::MIN),
        Bson::Int32(i32::MIN),
        Bson::Int64(i64::MAX),
        Bson::Array(vec![Bson::Array(vec![doc! { "$oid": "x" }.into()])]),
        Bson::Binary(bson::Binary {
            subtype: bson::spec::BinarySubtype::BinaryOld,
            bytes: vec![1, 2, 3],
        }),
        Bson::RegularExpression(bson::Regex {
            pattern: "a".try_into().unwrap(),
            options: "i".try_into().unwrap(),
        }),
    ];
    for value in values {
        let patch = patch(
            &[("a", value.clone()), ("list", vec![value.clone()].into())],
            &[],
        );
        let bytes = patch
            .apply_to_bytes(&doc! { "a": value.clone(), "b": 1 }.to_vec().unwrap(), 7)
            .unwrap();
        let expected = doc! { "a": value.clone(), "b": 1, "list": [value], "rev": 7_i64 };
        assert_eq!(bytes, expected.to_vec().unwrap());
        assert_eq!(
            patch.to_raw_update(7).unwrap().as_bytes(),
            patch.to_update(7).to_vec().unwrap()
        );
    }
}

#[test]
fn what_is_no_document_is_no_panic() {
    let good = doc! { "a": [1, { "b": "text" }], "c": { "d": 1.5 } }
        .to_vec()
        .unwrap();
    let patch = patch(&[("a.1.b", 1.into()), ("c.d", 2.into())], &[]);
    assert!(patch.apply_to_bytes(&good, 1).is_ok());
    for length in 0..good.len() {
        let cut = patch.apply_to_bytes(&good[..length], 1);
        assert!(matches!(cut, Err(PatchError::Malformed(_))), "{length}");
        for flip in [1, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[length] ^= flip;
            // Whatever it is, it is told or it is still a document.
            if let Ok(bytes) = patch.apply_to_bytes(&bad, 1) {
                RawDocument::from_bytes(&bytes).unwrap();
            }
        }
    }
}

#[test]
fn what_cannot_be_encoded_is_told() {
    let patch = patch(&[("a", doc! { "with\0null": 1 }.into())], &[]);
    let error = patch
        .apply_to_bytes(&doc! {}.to_vec().unwrap(), 1)
        .unwrap_err();
    assert!(matches!(error, PatchError::Value(_)), "{error}");
    assert!(matches!(patch.to_raw_update(1), Err(PatchError::Value(_))));
}
