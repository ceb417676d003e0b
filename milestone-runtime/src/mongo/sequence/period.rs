//! The periods of a sequence, and the counters that they have. Everything here is pure.

use std::sync::Arc;

use bson::{DateTime, Document, doc};
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// What stands between the name of a sequence and the prefix of a period, in the `_id` of a counter.
const SEPARATOR: char = '/';

/// The longest name, in bytes.
const LONGEST_NAME: usize = 200;

/// When ids begin anew.
pub(super) enum Period {
    Daily,
    Monthly,
    Custom(Arc<dyn Fn(&Zoned) -> String + Send + Sync>),
}

impl Period {
    pub(super) fn prefix(&self, now: &Zoned) -> String {
        let year = now.year().rem_euclid(100);
        match self {
            Self::Daily => format!("{year:02}{:02}{:02}", now.month(), now.day()),
            Self::Monthly => format!("{year:02}{:02}", now.month()),
            Self::Custom(prefix) => prefix(now),
        }
    }
}

/// A time of the server as people of a zone see it.
pub(super) fn zoned(time: DateTime, zone: &TimeZone) -> Result<Zoned, jiff::Error> {
    let time = Timestamp::from_millisecond(time.timestamp_millis())?;
    Ok(time.to_zoned(zone.clone()))
}

/// The `_id` of the counter of a period.
pub(super) fn counter(name: &str, prefix: &str) -> String {
    format!("{name}{SEPARATOR}{prefix}")
}

/// The counters of a sequence before that prefix, without that of the present period. No name has a separator in it, so what stands between
/// `orders/` and `orders/150000` belongs to `orders`.
pub(super) fn before(name: &str, prefix: &str, present: &str) -> Document {
    doc! { "_id": { "$gte": counter(name, ""), "$lt": counter(name, prefix), "$ne": present } }
}

pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        Err("it is empty")
    } else if name.contains(SEPARATOR) {
        Err("a `/` stands between the name and the period of a counter, so it cannot be in a name")
    } else if name.contains('\0') {
        Err("it has a NUL in it")
    } else if name.len() > LONGEST_NAME {
        Err("it is longer than 200 bytes")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str, zone: &TimeZone) -> Zoned {
        let time: Timestamp = time.parse().unwrap();
        zoned(DateTime::from_millis(time.as_millisecond()), zone).unwrap()
    }

    #[test]
    fn days_and_months_begin_in_the_zone() {
        let late = "2014-06-30T23:30:00Z";
        assert_eq!(Period::Daily.prefix(&at(late, &TimeZone::UTC)), "140630");
        assert_eq!(Period::Monthly.prefix(&at(late, &TimeZone::UTC)), "1406");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(Period::Daily.prefix(&at(late, &east)), "140701");
        assert_eq!(Period::Monthly.prefix(&at(late, &east)), "1407");
        let distant = at("2103-01-09T00:00:00Z", &TimeZone::UTC);
        assert_eq!(Period::Daily.prefix(&distant), "030109");
    }

    #[test]
    fn a_prefix_of_ones_own_sees_the_time_in_the_zone() {
        let week = Period::Custom(Arc::new(|now| now.strftime("%G-W%V").to_string()));
        assert_eq!(
            week.prefix(&at("2014-06-25T12:00:00Z", &TimeZone::UTC)),
            "2014-W26"
        );
    }

    #[test]
    fn names_cannot_run_into_each_other() {
        for name in ["", "a/b", "/", "a\0", &"x".repeat(201)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["orders", "Größe", "a.b$c", &"x".repeat(200)] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
        let expected =
            doc! { "_id": { "$gte": "orders/", "$lt": "orders/150000", "$ne": "orders/140625" } };
        assert_eq!(before("orders", "150000", "orders/140625"), expected);
    }
}
