//! What a verify function says of an attempt in doubt.

use bson::Bson;
use serde::{Deserialize, Serialize};

/// Whether an attempt whose fate nobody knew took effect: what the function gives that `#[action(verify = f)]` names.
///
/// It is asked only once the old attempt has had time to end (`settleAfter`). **Say [`Verdict::NotApplied`] only if the old attempt can no
/// longer take effect**: the action is then run again. Where a request may still be on its way, make it impossible first (cancel it at the
/// service by its idempotency key), or return an error: then this is asked again later. What is sure to have happened is
/// [`Verdict::Applied`], with the output that the action would have given.
///
/// ```
/// use milestone_core::verdict::Verdict;
///
/// let charged: Verdict<i64> = Verdict::Applied(250);
/// assert_ne!(charged, Verdict::NotApplied);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "output")]
pub enum Verdict<T> {
    /// It took effect; this is its output.
    Applied(T),
    /// It did not, and no longer can.
    NotApplied,
}

impl Verdict<Bson> {
    /// Reads one as [`Verdict`] stores it, with the output as it is.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn from_bson(value: Bson) -> Result<Self, String> {
        let Bson::Document(mut verdict) = value else {
            return Err(format!(
                "a verify gives a `Verdict`, not a value of type {:?}",
                value.element_type()
            ));
        };
        match verdict.get_str("verdict") {
            Ok("applied") => Ok(Self::Applied(
                verdict.remove("output").unwrap_or(Bson::Null),
            )),
            Ok("not_applied") => Ok(Self::NotApplied),
            _ => Err("a verify gives a `Verdict`, not another document".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_as_it_was() {
        let output = bson::doc! { "$oid": "opaque", "n": 1 };
        for verdict in [
            Verdict::Applied(Bson::Null),
            Verdict::Applied(output.into()),
            Verdict::NotApplied,
        ] {
            let stored = bson::serialize_to_bson(&verdict).expect("a value");
            assert_eq!(Verdict::from_bson(stored), Ok(verdict));
        }
    }

    #[test]
    fn another_value_is_no_verdict() {
        for value in [
            Bson::Null,
            true.into(),
            bson::doc! { "verdict": "maybe" }.into(),
        ] {
            assert!(Verdict::from_bson(value).is_err());
        }
    }
}
