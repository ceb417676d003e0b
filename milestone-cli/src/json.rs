//! Documents as relaxed extended JSON, with their fields in order.

use bson::Bson;

/// On one line.
pub(crate) fn line(value: &Bson) -> String {
    let mut text = String::new();
    write(&mut text, value, None);
    text
}

/// With a line for each field.
pub(crate) fn pretty(value: &Bson) -> String {
    let mut text = String::new();
    write(&mut text, value, Some(0));
    text
}

/// `depth` is that of the indentation; none is one line.
fn write(text: &mut String, value: &Bson, depth: Option<usize>) {
    match value {
        Bson::Document(document) => {
            let fields = document.iter().map(|(key, value)| (Some(key), value));
            write_all(text, ['{', '}'], fields.collect(), depth);
        }
        Bson::Array(values) => {
            let values = values.iter().map(|value| (None, value));
            write_all(text, ['[', ']'], values.collect(), depth);
        }
        leaf => {
            push!(text, "{}", leaf.clone().into_relaxed_extjson());
        }
    }
}

fn write_all(
    text: &mut String,
    [open, close]: [char; 2],
    values: Vec<(Option<&String>, &Bson)>,
    depth: Option<usize>,
) {
    text.push(open);
    let inner = depth.map(|depth| depth + 1).filter(|_| !values.is_empty());
    for (index, (key, value)) in values.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        match inner {
            Some(inner) => new_line(text, inner),
            None if index > 0 => text.push(' '),
            None => {}
        }
        if let Some(key) = key {
            push!(text, "{}: ", serde_json::Value::from(key.as_str()));
        }
        write(text, value, inner);
    }
    if let Some(inner) = inner {
        new_line(text, inner - 1);
    }
    text.push(close);
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

/// Reads a value: plain JSON, or extended JSON where a type is meant that JSON does not have.
pub(crate) fn read(text: &str) -> Result<Bson, String> {
    let no_json = |error| format!("no JSON: {error}");
    serde_json::from_str::<serde_json::Value>(text).map_err(no_json)?;
    // It would become a double that is near it.
    if let Some(digits) = integers(text).find(|digits| digits.parse::<i64>().is_err()) {
        return Err(format!(
            "no value that can be stored: the integer {digits} has more than 64 bits; write it as a string, or as \
             {{\"$numberDecimal\": \"{digits}\"}}"
        ));
    }
    serde_json::from_str(text).map_err(no_json)
}

/// The numbers of a JSON text that have neither a fraction nor an exponent.
fn integers(text: &str) -> impl Iterator<Item = &str> {
    let (mut in_string, mut is_escaped) = (false, false);
    let numbers = text.split(move |char: char| {
        if in_string {
            in_string = char != '"' || is_escaped;
            is_escaped = char == '\\' && !is_escaped;
            return true;
        }
        in_string = char == '"';
        !(char.is_ascii_digit() || "+-.eE".contains(char))
    });
    numbers.filter(|number| {
        let digits = number.strip_prefix('-').unwrap_or(number);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc, oid::ObjectId};

    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let value = doc! {
            "z": 1, "a": [true, Bson::Null, 2.5], "_id": ObjectId::from_bytes([7; 12]), "none": {}, "no": [],
            "at": DateTime::from_millis(1_767_236_400_000), "\"": "\n",
        };
        insta::assert_snapshot!(line(&value.clone().into()), @r#"{"z": 1, "a": [true, null, 2.5], "_id": {"$oid":"070707070707070707070707"}, "none": {}, "no": [], "at": {"$date":"2026-01-01T03:00:00Z"}, "\"": "\n"}"#);
        insta::assert_snapshot!(pretty(&value.clone().into()), @r#"
        {
          "z": 1,
          "a": [
            true,
            null,
            2.5
          ],
          "_id": {"$oid":"070707070707070707070707"},
          "none": {},
          "no": [],
          "at": {"$date":"2026-01-01T03:00:00Z"},
          "\"": "\n"
        }
        "#);
        assert_eq!(read(&pretty(&value.clone().into())), Ok(value.into()));
    }

    #[test]
    fn values_are_plain_or_extended_json() {
        assert_eq!(read("7"), Ok(Bson::Int32(7)));
        assert_eq!(read("5000000000"), Ok(Bson::Int64(5_000_000_000)));
        assert_eq!(read(r#"{"$numberLong": "7"}"#), Ok(Bson::Int64(7)));
        assert_eq!(read("\"a\""), Ok("a".into()));
        assert!(read("18446744073709551615").is_err());
        assert_eq!(read("-9223372036854775808"), Ok(Bson::Int64(i64::MIN)));
        for text in [
            "123456789012345678901234567890",
            "9223372036854775808",
            r#"{"a\"": [true, "7", -9223372036854775809]}"#,
        ] {
            assert!(
                read(text).unwrap_err().contains("more than 64 bits"),
                "{text}"
            );
        }
        for text in [
            "1e30",
            "123456789012345678901234567890.5",
            r#"{"123456789012345678901234567890\"": "\\"}"#,
            r#"["a\"", "9223372036854775808", {"$numberDouble": "1e300"}]"#,
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        assert!(read("{").unwrap_err().starts_with("no JSON"));
    }
}
