//! What users store comes back as it was.

use bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc,
    oid::ObjectId, spec::BinarySubtype,
};

use super::bench::{Bench, commit, set};
use crate::store::Committed;

/// Every type of BSON, with values at the edges.
fn values() -> Vec<Bson> {
    let subtypes = [
        BinarySubtype::Generic,
        BinarySubtype::Uuid,
        BinarySubtype::Md5,
        BinarySubtype::UserDefined(200),
    ];
    let binaries = subtypes.map(|subtype| {
        Bson::Binary(Binary {
            subtype,
            bytes: (0..16).collect(),
        })
    });
    let doubles = [
        0.0,
        -0.0,
        1.5,
        f64::MIN,
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let decimals = [
        "0",
        "-0E+3",
        "1.10",
        "NaN",
        "-Infinity",
        "9.999999999999999999999999999999999E+6144",
    ];
    let dates = [0, -1, 253_402_300_800_000, i64::MIN, i64::MAX];
    let mut values = vec![
        Bson::Null,
        Bson::Undefined,
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Boolean(true),
        Bson::Int32(i32::MIN),
        Bson::Int64(i64::MAX),
        Bson::Int64(1),
        Bson::String(String::new()),
        Bson::String("a\0b \u{1F600} \u{FEFF}".to_owned()),
        Bson::Symbol("symbol".to_owned()),
        Bson::JavaScriptCode("1 + 1".to_owned()),
        Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
            code: "x".to_owned(),
            scope: doc! { "x": 1 },
        }),
        Bson::Timestamp(Timestamp {
            time: u32::MAX,
            increment: 7,
        }),
        Bson::Timestamp(Timestamp {
            time: 0,
            increment: 0,
        }),
        Bson::ObjectId(ObjectId::new()),
        Bson::RegularExpression(Regex {
            pattern: bson_text("^a.*$"),
            options: bson_text("im"),
        }),
        Bson::Array(Vec::new()),
        Bson::Array(vec![Bson::Null, Bson::Array(vec![Bson::Int32(1)])]),
        Bson::Document(Document::new()),
        pointer(),
    ];
    values.extend(binaries);
    values.extend(doubles.map(Bson::Double));
    values.extend(
        decimals.map(|text| Bson::Decimal128(text.parse::<Decimal128>().expect("a decimal"))),
    );
    values.extend(dates.map(|millis| Bson::DateTime(DateTime::from_millis(millis))));
    values
}

fn bson_text(text: &str) -> bson::raw::CString {
    text.try_into().expect("no NUL in it")
}

/// A type so old that it cannot be made by hand.
fn pointer() -> Bson {
    let mut bytes = vec![
        0, 0, 0, 0, 0x0C, b'p', 0, 5, 0, 0, 0, b'd', b'b', b'.', b'c', 0,
    ];
    bytes.extend(ObjectId::new().bytes());
    bytes.push(0);
    bytes[0] = u8::try_from(bytes.len()).expect("a short document");
    let document = Document::from_reader(&bytes[..]).expect("a document with a pointer");
    document.get("p").cloned().expect("the pointer")
}

#[track_caller]
fn assert_value(found: &Bson, expected: &Bson) {
    super::bench::assert_same(
        &doc! { "value": found.clone() },
        &doc! { "value": expected.clone() },
    );
}

/// Through insert, claim, get and list.
async fn assert_kept_as_parameters(bench: &Bench, values: Vec<Bson>) {
    for (number, value) in values.into_iter().enumerate() {
        let id = format!("m{number:03}");
        let mut record = bench.record(id.as_str());
        record.parameters = value.clone();
        if !is_empty_timestamp(&value) {
            bench.insert(vec![record]).await;
        } else if bench.refuses(record).await {
            continue;
        }
        let claimed = bench.claim_all(&bench.request("w1", 1)).await;
        assert_eq!(
            claimed.records.len(),
            1,
            "{value:?} does not break the claim: {:?}",
            claimed.unreadable
        );
        assert_value(&claimed.records[0].parameters, &value);
        assert_value(&bench.get(id.as_str()).await.parameters, &value);
        assert_value(
            bench
                .raw(id.as_str())
                .await
                .get("parameters")
                .expect("parameters"),
            &value,
        );
    }
}

/// MongoDB puts the present time in its place where it is a field of the document itself. A store may refuse it there.
fn is_empty_timestamp(value: &Bson) -> bool {
    let empty = Timestamp {
        time: 0,
        increment: 0,
    };
    *value == Bson::Timestamp(empty)
}

/// Through a patch.
async fn assert_kept_as_outputs(bench: &Bench, values: Vec<Bson>) {
    let mut record = bench.held("one", "w1", "t1").await;
    for value in values {
        let told = bench
            .commit(commit(&record, set("actions.0.output", value.clone())))
            .await;
        assert!(matches!(told, Committed::Done), "{value:?}: {told:?}");
        record.rev += 1;
        let found = bench.get("one").await;
        assert_value(found.actions[0].output.as_ref().expect("an output"), &value);
    }
}

/// Keys that mean something elsewhere.
fn keys() -> Vec<Bson> {
    let mut values: Vec<Bson> = [
        "",
        ".",
        "a.b",
        ".a",
        "a.",
        "..",
        "$",
        "$a",
        "a$b",
        "$set",
        "$date",
        "$oid",
        "0",
        "_id",
        "\u{1F600}",
    ]
    .into_iter()
    .flat_map(|key| {
        [
            doc! { key: 1 },
            doc! { key: [{ key: { key: null } }], "other": 2 },
        ]
    })
    .map(Bson::from)
    .collect();
    values.push(doc! { "$oid": "no hex", "$numberLong": "5" }.into());
    values.push(doc! { "$numberDecimal": "1.0" }.into());
    values.push(doc! { "$numberLong": "5" }.into());
    values.push(doc! { "$binary": { "base64": "AA==", "subType": "00" } }.into());
    values.push(doc! { "b": 1, "a": 2, "B": 3 }.into());
    values
}

/// The values of all types that the subject has.
fn values_for(bench: &Bench) -> Vec<Bson> {
    let mut values = values();
    if !bench.subject.has_deprecated_types() {
        values.retain(|value| {
            !matches!(
                value,
                Bson::Undefined | Bson::Symbol(_) | Bson::DbPointer(_)
            )
        });
    }
    values
}

pub(super) async fn of_every_type_as_parameters(bench: Bench) {
    assert_kept_as_parameters(&bench, values_for(&bench)).await;
    let all: Document = values_for(&bench)
        .into_iter()
        .enumerate()
        .map(|(number, value)| (number.to_string(), value))
        .collect();
    let mut record = bench.record("all");
    record.parameters = all.clone().into();
    bench.insert(vec![record]).await;
    assert_value(&bench.get("all").await.parameters, &all.into());
}

pub(super) async fn of_every_type_as_outputs(bench: Bench) {
    assert_kept_as_outputs(&bench, values_for(&bench)).await;
}

pub(super) async fn with_any_keys(bench: Bench) {
    assert_kept_as_parameters(&bench, keys()).await;
    assert_kept_as_outputs(&bench, keys()).await;
}

pub(super) async fn in_labels_and_ids(bench: Bench) {
    for id in [
        "a.b",
        "$where",
        "with space",
        "'quoted' \"twice\" `thrice`",
        "%_*?",
        "\u{1F600}",
        "65f0c0ffee65f0c0ffee65f0",
        "{}",
    ] {
        let mut record = bench.record(id);
        for name in ["a.b", "$c", "", "plain"] {
            record.labels.insert(name.to_owned(), id.to_owned());
        }
        bench.insert(vec![record.clone()]).await;
        assert_eq!(bench.get(id).await, record);
        assert_eq!(bench.claimed_ids(&bench.request("w1", 1)).await, [id]);
        bench.renew("w1", &[(id, "token-of-w1")], bench.at(1)).await;
        assert!(
            bench
                .store
                .remove(id.into())
                .await
                .expect("a removal is answered")
        );
    }
    // A string that looks like an ObjectId is another id than the ObjectId.
    let id = ObjectId::new();
    bench
        .insert(vec![bench.record(id), bench.record(id.to_hex())])
        .await;
    assert_eq!(
        bench
            .store
            .count(crate::store::Filter::new())
            .await
            .expect("a count is answered"),
        2
    );
}
