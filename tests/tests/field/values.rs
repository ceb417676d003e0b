//! Values: what comes back as it was, and what is refused, where, and with which words. The table is docs/guide/values.md.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write as _},
    net::IpAddr,
    time::{Duration, SystemTime},
};

use bson::{Bson, doc, oid::ObjectId};
use milestone_runtime::{
    Method, OutcomeError, Runtime, StartError,
    action::{ActionError, Call, Params},
    core::record::{ActionState, AttemptKind, Status},
    dynamic::Action,
    store::Filter,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    look::{action, attempts, until},
    on_stores,
    place::Place,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

on_stores!(memory, sqlite, mongodb:
    f34_outputs_that_cannot_be_stored,
    f34_a_document_that_would_be_too_large,
    f35_values_are_kept_or_refused_as_documented,
    f35_a_map_like_extended_json_is_taken_as_a_map,
);

const GUIDE: &str = include_str!("../../../docs/guide/values.md");

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    items: Vec<Item>,
}

#[expect(clippy::option_option, reason = "what becomes of it is tested")]
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Item {
    price: u64,
    note: Option<Option<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Colour {
    Red,
    Grey(u8),
    Mixed { with: Box<Colour> },
}

/// What becomes of values, row by row of the table.
struct Table {
    runtime: Runtime,
    rows: String,
}

impl Table {
    /// Stores a value as parameters and as an output, and says what has become of it; the same for both.
    async fn row<T>(&mut self, name: &str, value: T)
    where
        T: Serialize + DeserializeOwned + Debug + Clone + Send + Sync + 'static,
    {
        let as_parameters = self.as_parameters(value.clone()).await;
        let as_output = self.as_output(value).await;
        assert_eq!(as_parameters, as_output, "{name}");
        let _ = writeln!(self.rows, "| `{name}` | {as_parameters} |");
    }

    async fn as_parameters<T>(&self, value: T) -> String
    where
        T: Serialize + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let see = Method::new("see", |call: Call| async move {
            let Params(seen) = call.extract::<Params<T>>()?;
            Ok::<_, ActionError>(format!("{seen:?}"))
        });
        self.runtime.register(see).unwrap();
        match self.runtime.start("see", "see", &value).await {
            Ok(handle) => {
                let outputs = handle.outcome().await.unwrap();
                assert_eq!(outputs.get_str("see").unwrap(), format!("{value:?}"));
                "comes back as it was".to_owned()
            }
            Err(StartError::Parameters { kind, reason }) => {
                assert_eq!(kind, std::any::type_name::<&T>());
                refusal(&reason)
            }
            Err(error) => panic!("{value:?}: {error}"),
        }
    }

    async fn as_output<T>(&self, value: T) -> String
    where
        T: Serialize + DeserializeOwned + Debug + Clone + Send + Sync + 'static,
    {
        let given = value.clone();
        let give = Method::new("give", move |_| {
            let given = given.clone();
            async move { Ok::<_, ActionError>(given) }
        });
        let take = Method::new("take", |call: Call| async move {
            let seen: T = call.output_of("give")?;
            Ok::<_, ActionError>(format!("{seen:?}"))
        });
        self.runtime.register_all([give, take]).unwrap();
        let graph = Action::new("give").next(["take"]);
        let handle = self.runtime.start("give", graph, ()).await.unwrap();
        match handle.outcome().await {
            Ok(outputs) => {
                assert_eq!(outputs.get_str("take").unwrap(), format!("{value:?}"));
                "comes back as it was".to_owned()
            }
            Err(OutcomeError::Failed { action, error, .. }) => {
                assert_eq!(action, "give");
                let kind = std::any::type_name::<T>();
                let before = format!(
                    "`give` took effect, but BSON cannot hold its output of type `{kind}`: "
                );
                let reason = error.message.strip_prefix(&before).unwrap_or_else(|| {
                    panic!("{value:?}: {}", error.message);
                });
                refusal(reason.strip_suffix("; it is not run again").unwrap())
            }
            Err(error) => panic!("{value:?}: {error}"),
        }
    }
}

fn refusal(reason: &str) -> String {
    format!("refused: {}", reason.replace('|', "\\|"))
}

fn at(seconds: u64, nanos: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}

/// F35: NaN, infinities, empty keys, unit, nested options, times below a millisecond and others: each comes back as it was or is refused
/// with its place, as the guide says of it, as parameters and as an output.
async fn f35_values_are_kept_or_refused_as_documented(place: Place) {
    let runtime = place.builder().build().await.unwrap();
    runtime.spawn();
    let mut table = Table {
        runtime,
        rows: String::new(),
    };
    numbers(&mut table).await;
    texts_and_keys(&mut table).await;
    nothing_and_options(&mut table).await;
    times_and_others(&mut table).await;
    let documented: String = GUIDE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .fold(String::new(), |lines, line| lines + line + "\n");
    assert!(
        documented == table.rows,
        "docs/guide/values.md should have these rows:\n{}",
        table.rows
    );
}

async fn numbers(table: &mut Table) {
    table.row("f64::NAN", f64::NAN).await;
    table.row("f64::INFINITY", f64::INFINITY).await;
    table.row("f64::NEG_INFINITY", f64::NEG_INFINITY).await;
    table.row("-0.0", -0.0).await;
    table.row("0.1_f32", 0.1_f32).await;
    table.row("i64::MIN", i64::MIN).await;
    table.row("i64::MAX as u64", i64::MAX as u64).await;
    table.row("u64::MAX", u64::MAX).await;
    table.row("5_i128", 5_i128).await;
    table.row("5_u128", 5_u128).await;
}

async fn texts_and_keys(table: &mut Table) {
    let map = |key: &str| BTreeMap::from([(key.to_owned(), 1)]);
    table.row("\"\"", String::new()).await;
    table.row("\"a\\0b\"", "a\0b".to_owned()).await;
    table.row("'\u{1F600}'", '\u{1F600}').await;
    table.row("{ \"\": 1 }", map("")).await;
    table.row("{ \"a.b\": 1 }", map("a.b")).await;
    table.row("{ \"$set\": 1 }", map("$set")).await;
    let oid = BTreeMap::from([("$oid".to_owned(), "507f1f77bcf86cd799439011".to_owned())]);
    table
        .row("{ \"$oid\": \"507f1f77bcf86cd799439011\" }", oid)
        .await;
    table.row("{ \"a\\0b\": 1 }", map("a\0b")).await;
    let colours = BTreeMap::from([(Colour::Red, 1)]);
    table.row("{ Colour::Red: 1 }", colours).await;
    table.row("{ 7: 1 }", BTreeMap::from([(7, 1)])).await;
    table.row("{ true: 1 }", BTreeMap::from([(true, 1)])).await;
    table.row("{ 'x': 1 }", BTreeMap::from([('x', 1)])).await;
    let pair = BTreeMap::from([((1, 2), 1)]);
    table.row("{ (1, 2): 1 }", pair).await;
}

async fn nothing_and_options(table: &mut Table) {
    table.row("()", ()).await;
    table.row("None", None::<i32>).await;
    table.row("Some(7)", Some(7)).await;
    table.row("Some(Some(7))", Some(Some(7))).await;
    table.row("Some(None)", Some(None::<i32>)).await;
    table.row("Some(())", Some(())).await;
    table
        .row("[Some(Some(7)), None]", vec![Some(Some(7)), None])
        .await;
    let order = |price, note| Order {
        items: vec![
            Item {
                price: 1,
                note: None,
            },
            Item { price, note },
        ],
    };
    table
        .row(
            "Order { items: [.., Item { note: Some(None), .. }] }",
            order(1, Some(None)),
        )
        .await;
    table
        .row(
            "Order { items: [.., Item { price: u64::MAX, .. }] }",
            order(u64::MAX, None),
        )
        .await;
    let nested = BTreeMap::from([("a b".to_owned(), (1, u64::MAX))]);
    table.row("{ \"a b\": (1, u64::MAX) }", nested).await;
}

async fn times_and_others(table: &mut Table) {
    table
        .row("SystemTime, 123 ns", at(1_700_000_000, 123))
        .await;
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    table.row("SystemTime, before 1970", before).await;
    table
        .row("Duration::from_nanos(1)", Duration::from_nanos(1))
        .await;
    table.row("Duration::MAX", Duration::MAX).await;
    let date = bson::DateTime::from_millis(1_700_000_000_001);
    table.row("bson::DateTime, 1 ms", date).await;
    let earliest = bson::DateTime::from_millis(i64::MIN);
    table.row("bson::DateTime::MIN", earliest).await;
    let id = ObjectId::parse_str("507f1f77bcf86cd799439011").unwrap();
    table.row("ObjectId", id).await;
    table.row("IpAddr, v4", IpAddr::from([127, 0, 0, 1])).await;
    table.row("IpAddr, v6", IpAddr::from([0_u16; 8])).await;
    table.row("vec![0_u8, 255]", vec![0_u8, 255]).await;
    table.row("Colour::Red", Colour::Red).await;
    table.row("Colour::Grey(7)", Colour::Grey(7)).await;
    let mixed = Colour::Mixed {
        with: Box::new(Colour::Grey(7)),
    };
    table.row("Colour::Mixed { with: Grey(7) }", mixed).await;
    let result: Result<i32, String> = Err("no".to_owned());
    table.row("Err(\"no\")", result).await;
}

/// F35: `bson::Document` itself takes such a map for extended JSON when it is read, which is a clear error; any other type takes it as it is.
async fn f35_a_map_like_extended_json_is_taken_as_a_map(place: Place) {
    async fn see<T: DeserializeOwned + Debug>(call: Call) -> Result<String, ActionError> {
        let Params(seen) = call.extract::<Params<T>>()?;
        Ok(format!("{seen:?}"))
    }
    let runtime = place
        .builder()
        .register(Method::new("map", see::<BTreeMap<String, String>>))
        .register(Method::new("document", see::<bson::Document>))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::fork("both").next(["map", "document"]);
    let parameters = doc! { "$numberLong": "5" };
    let handle = runtime.start("both", graph, &parameters).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    assert!(error.to_string().contains("`document`"), "{error}");
    assert!(error.to_string().contains("extended JSON"), "{error}");
    let record = handle.record().await.unwrap();
    assert_eq!(record.parameters, Bson::from(parameters));
    let seen = action(&record, "map").output.as_ref().unwrap();
    assert_eq!(seen.as_str().unwrap(), "{\"$numberLong\": \"5\"}");
}

/// An action that notes itself and gives this.
fn gives<T: Serialize + Clone + Send + Sync + 'static>(ledger: &Ledger, value: T) -> Method {
    let ledger = ledger.clone();
    Method::new("gives", move |_| {
        ledger.note("gives");
        let value = value.clone();
        async move { Ok::<_, ActionError>(value) }
    })
    .options(quick())
}

/// An output that cannot be stored: that attempt fails, with an error that names the action and what is wrong, size and limit where it
/// is the size; it is not run again, a branch beside it completes, and the milestone takes commands and can be retried.
async fn cannot_be_stored(place: &Place, ledger: &Ledger, gives: Method, parts: &[&str]) {
    let before = ledger.count("gives");
    let runtime = place
        .builder()
        .register(gives)
        .register(ledger.fails_first("beside", 1))
        .register(ledger.gives("after", 1))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let graph = Action::fork("both").next([Action::new("gives").next(["after"]), "beside".into()]);
    let handle = runtime.start("both", graph, ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    let OutcomeError::Failed {
        action: name,
        error,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(name, "gives");
    for part in ["took effect", "`gives`", "it is not run again"]
        .iter()
        .chain(parts)
    {
        assert!(error.message.contains(part), "{}", error.message);
    }
    let record = handle.record().await.unwrap();
    assert_eq!(
        attempts(&record, "gives")[0].kind,
        Some(AttemptKind::Refused)
    );
    assert_eq!(action(&record, "gives").output, None);
    assert_eq!(action(&record, "beside").state, ActionState::Completed);
    assert_eq!(ledger.count("gives"), before + 1);
    // It can still be updated: once the action gives something else, the milestone completes.
    runtime.register(ledger.gives("gives", "small")).unwrap();
    handle.retry().await.unwrap();
    let outputs = handle.outcome().await.unwrap();
    assert_eq!(outputs.get_str("gives").unwrap(), "small");
    let completed = Filter::new().state(Status::Completed);
    assert!(runtime.count(completed).await.unwrap() > 0);
    runtime.shutdown().await;
}

/// F34: each kind of output that cannot be stored.
async fn f34_outputs_that_cannot_be_stored(place: Place) {
    let ledger = Ledger::new();
    let store = async |gives, parts: &[&str]| {
        cannot_be_stored(&place, &ledger, gives, parts).await;
    };
    let large = gives(&ledger, "x".repeat(2 << 20));
    store(
        large,
        &[
            "the output of `gives`",
            "2097157 bytes",
            "`output` is 1048576",
        ],
    )
    .await;
    store(gives(&ledger, u64::MAX), &["`u64`", "18446744073709551615"]).await;
    store(gives(&ledger, [1, i128::MAX]), &["at `[0]`", "i128"]).await;
    let map = BTreeMap::from([(vec![1], 1)]);
    store(gives(&ledger, map), &["key", "sequence"]).await;
    let mut deep = Bson::Null;
    for _ in 0..100 {
        deep = Bson::Array(vec![deep]);
    }
    store(gives(&ledger, deep), &["90 levels deep", "`depth`"]).await;
    let nul = BTreeMap::from([("a\0b", 1)]);
    store(gives(&ledger, nul), &["at `[key number 1]`", "null"]).await;
}

/// F34: many outputs, each within its limit, are together more than the document may have. The one that is too much is refused with the
/// size and the limit of the document.
async fn f34_a_document_that_would_be_too_large(place: Place) {
    const COUNT: usize = 6;
    let ledger = Ledger::new();
    let limits = milestone_runtime::core::limits::Limits::new()
        .output(100_000)
        .document(400_000);
    let runtime = place
        .builder()
        .limits(limits)
        .register(ledger.gives("large", "x".repeat(90_000)))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    let mut graph = Action::new(format!("a{COUNT}")).method("large");
    for n in (1..COUNT).rev() {
        graph = Action::new(format!("a{n}")).method("large").next([graph]);
    }
    let handle = runtime.start("chain", graph, ()).await.unwrap();
    let error = handle.outcome().await.unwrap_err();
    let OutcomeError::Failed {
        action: name,
        error,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(name, "a5");
    for part in ["`a5`", "`document` is 400000", "took effect"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
    // It takes commands: a retry is carried out, and fails the same way, since there is no more room.
    handle.retry().await.unwrap();
    let record = until(&runtime, handle.id(), |record| {
        record.state == Status::Failed && attempts(record, "a5").len() == 2
    })
    .await;
    assert_eq!(action(&record, "a4").state, ActionState::Completed);
}
