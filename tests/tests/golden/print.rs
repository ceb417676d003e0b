//! Canonical extended JSON, with the fields in the order of the document.

use std::fmt::Write as _;

use bson::{Bson, Document};

pub(crate) fn pretty(document: &Document) -> String {
    let mut text = String::new();
    print(&mut text, &Bson::Document(document.clone()), 0);
    text.push('\n');
    text
}

fn print(text: &mut String, value: &Bson, depth: usize) {
    match value {
        Bson::Document(fields) => {
            let items = fields.iter().map(|(key, item)| (Some(key.as_str()), item));
            print_all(text, ['{', '}'], items, depth);
        }
        Bson::Array(items) => print_all(
            text,
            ['[', ']'],
            items.iter().map(|item| (None, item)),
            depth,
        ),
        scalar => text.push_str(&print_scalar(scalar)),
    }
}

fn print_all<'i>(
    text: &mut String,
    brackets: [char; 2],
    items: impl Iterator<Item = (Option<&'i str>, &'i Bson)>,
    depth: usize,
) {
    let [open, close] = brackets;
    text.push(open);
    let mut empty = true;
    for (key, item) in items {
        text.push_str(if empty { "\n" } else { ",\n" });
        text.push_str(&"  ".repeat(depth + 1));
        if let Some(key) = key {
            write!(text, "{}: ", serde_json::Value::from(key)).expect("a string takes it");
        }
        print(text, item, depth + 1);
        empty = false;
    }
    if !empty {
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    }
    text.push(close);
}

fn print_scalar(value: &Bson) -> String {
    match value {
        Bson::Null => "null".to_owned(),
        Bson::Boolean(value) => value.to_string(),
        Bson::String(value) => serde_json::Value::from(value.as_str()).to_string(),
        Bson::Int32(value) => format!(r#"{{ "$numberInt": "{value}" }}"#),
        Bson::Int64(value) => format!(r#"{{ "$numberLong": "{value}" }}"#),
        Bson::Double(value) => format!(r#"{{ "$numberDouble": "{value:?}" }}"#),
        Bson::ObjectId(value) => format!(r#"{{ "$oid": "{value}" }}"#),
        Bson::DateTime(value) => format!(
            r#"{{ "$date": {{ "$numberLong": "{}" }} }}"#,
            value.timestamp_millis()
        ),
        other => panic!("no golden document holds {other:?}"),
    }
}
