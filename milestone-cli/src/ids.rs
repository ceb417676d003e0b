//! Ids as people write them.

use bson::oid::ObjectId;
use milestone_runtime::MilestoneId;

use crate::text::is_control;

/// What an id on the command line may mean: 24 hexadecimal digits are an `ObjectId`, or else a string that looks like one; anything else
/// is a string. `{"$oid": ".."}` and `".."` mean one of them for sure.
pub(crate) fn meanings(text: &str) -> Result<Vec<MilestoneId>, String> {
    if text.is_empty() {
        return Err("an id cannot be empty".to_owned());
    }
    if let Some(string) = json_string(text) {
        return Ok(vec![string.into()]);
    }
    if text.starts_with('{')
        && let Ok(value) = serde_json::from_str::<serde_json::Value>(text)
    {
        let oid = value.get("$oid").and_then(serde_json::Value::as_str);
        if let Some(id) = oid.and_then(|hex| ObjectId::parse_str(hex).ok()) {
            return Ok(vec![id.into()]);
        }
        return Err(format!(
            "`{text}` is no id: as JSON it is {{\"$oid\": \"<24 hexadecimal digits>\"}} or a string in quotes"
        ));
    }
    let string = MilestoneId::from(text);
    Ok(match ObjectId::parse_str(text) {
        Ok(id) => vec![id.into(), string],
        Err(_) => vec![string],
    })
}

fn json_string(text: &str) -> Option<String> {
    text.starts_with('"')
        .then(|| serde_json::from_str::<String>(text).ok())
        .flatten()
}

/// An id so that [`meanings`] gives it back, on one line and harmless for a terminal: in most cases as it is.
pub(crate) fn written(id: &MilestoneId) -> String {
    match id {
        MilestoneId::ObjectId(id) => id.to_hex(),
        MilestoneId::String(text) => {
            let plain = meanings(text).is_ok_and(|meanings| meanings == [id.clone()]);
            if plain && !text.chars().any(is_control) {
                text.clone()
            } else {
                in_quotes(text)
            }
        }
    }
}

/// As JSON, with all that is no plain character escaped.
fn in_quotes(text: &str) -> String {
    let mut quoted = String::new();
    for char in serde_json::Value::from(text).to_string().chars() {
        if is_control(char) {
            push!(quoted, "\\u{:04x}", u32::from(char));
        } else {
            quoted.push(char);
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "6d696c6573746f6e652d3031";

    #[test]
    fn digits_are_an_object_id_or_a_string() {
        let id = ObjectId::parse_str(HEX).unwrap();
        assert_eq!(meanings(HEX), Ok(vec![id.into(), HEX.into()]));
        assert_eq!(
            meanings(&format!("{{\"$oid\":\"{HEX}\"}}")),
            Ok(vec![id.into()])
        );
        assert_eq!(meanings(&format!("\"{HEX}\"")), Ok(vec![HEX.into()]));
        assert_eq!(meanings("order-7"), Ok(vec!["order-7".into()]));
        assert_eq!(meanings("{x}"), Ok(vec!["{x}".into()]));
        assert!(meanings("").is_err());
        assert!(meanings("{\"$oid\":\"7\"}").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let id = ObjectId::parse_str(HEX).unwrap();
        for id in [
            MilestoneId::from(id),
            HEX.into(),
            "order-7".into(),
            "\"".into(),
            "\"a\"".into(),
            "{\"$oid\":\"7\"}".into(),
            "a b".into(),
            "a\nb\u{1b}[2J\u{9b}\u{202e}".into(),
        ] {
            let read = meanings(&written(&id)).unwrap();
            assert_eq!(read[0], id);
            assert!(!written(&id).chars().any(is_control));
        }
        assert_eq!(written(&HEX.into()), format!("\"{HEX}\""));
    }
}
