//! Times as people read and write them: relative to the server's now, and absolute in UTC.

use std::time::Duration;

use bson::DateTime;

/// Absolute, to the second.
pub(crate) fn absolute(time: DateTime) -> String {
    match time.try_to_rfc3339_string() {
        Ok(text) if text.len() >= 19 => format!("{} {} UTC", &text[..10], &text[11..19]),
        _ => format!("{} ms after 1970", time.timestamp_millis()),
    }
}

/// Absolute and relative: `2026-01-01 03:00:45 UTC (12s ago)`.
pub(crate) fn both(time: DateTime, now: DateTime) -> String {
    format!("{} ({})", absolute(time), relative(time, now))
}

/// `in 12s`, `12s ago` or `now`.
pub(crate) fn relative(time: DateTime, now: DateTime) -> String {
    let (time, now) = (time.timestamp_millis(), now.timestamp_millis());
    let distance = duration(Duration::from_millis(time.abs_diff(now)));
    if time.abs_diff(now) < 1_000 {
        "now".to_owned()
    } else if time > now {
        format!("in {distance}")
    } else {
        format!("{distance} ago")
    }
}

/// The two largest units: `2h 5m`.
pub(crate) fn duration(duration: Duration) -> String {
    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;
    let seconds = duration.as_secs();
    let unit = match seconds {
        0 => {
            return format!("{}ms", duration.as_millis());
        }
        1..HOUR => 1,
        HOUR..DAY => 60,
        _ => HOUR,
    };
    if seconds < DAY {
        let whole = Duration::from_secs(seconds / unit * unit);
        return humantime::format_duration(whole).to_string();
    }
    let (days, hours) = (seconds / DAY, seconds % DAY / HOUR);
    if days >= 10 || hours == 0 {
        format!("{days}d")
    } else {
        format!("{days}d {hours}h")
    }
}

/// How long ago, in the largest unit: for a column.
pub(crate) fn age(time: DateTime, now: DateTime) -> String {
    let millis = now
        .timestamp_millis()
        .saturating_sub(time.timestamp_millis());
    let seconds = u64::try_from(millis / 1_000).unwrap_or(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A time on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(DateTime),
    Ago(Duration),
}

impl Moment {
    /// Reads `2026-01-01T03:00:00Z`, `2026-01-01 03:00:00 UTC`, `2026-01-01` or `2h`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let accepted = "a time is RFC 3339 (2026-01-01T03:00:00Z), a day in UTC (2026-01-01), or how long ago (2h, 30m, 7d)";
        if let Ok(ago) = humantime::parse_duration(text) {
            return Ok(Self::Ago(ago));
        }
        let text = text.trim();
        let spelled = match text.strip_suffix(" UTC") {
            Some(time) => format!("{}Z", time.replacen(' ', "T", 1)),
            None if text.len() == 10 => format!("{text}T00:00:00Z"),
            None => text.to_owned(),
        };
        DateTime::parse_rfc3339_str(&spelled)
            .map(Self::At)
            .map_err(|_| accepted.to_owned())
    }

    pub(crate) fn before(self, now: DateTime) -> DateTime {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => {
                let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                DateTime::from_millis(now.timestamp_millis().saturating_sub(ago))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_767_236_400_000);

    fn earlier(seconds: i64) -> DateTime {
        DateTime::from_millis(NOW.timestamp_millis() - seconds * 1_000)
    }

    #[test]
    fn times_are_told_both_ways() {
        assert_eq!(both(NOW, NOW), "2026-01-01 03:00:00 UTC (now)");
        assert_eq!(both(earlier(12), NOW), "2026-01-01 02:59:48 UTC (12s ago)");
        assert_eq!(relative(earlier(-125), NOW), "in 2m 5s");
        assert_eq!(relative(earlier(7_325), NOW), "2h 2m ago");
        assert_eq!(relative(earlier(90_000), NOW), "1d 1h ago");
        assert_eq!(relative(earlier(40 * 86_400), NOW), "40d ago");
        assert_eq!(duration(Duration::from_millis(250)), "250ms");
        let ages = [0, 59, 60, 3_599, 3_600, 86_399, 86_400].map(|ago| age(earlier(ago), NOW));
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "23h", "1d"]);
        assert_eq!(age(earlier(-5), NOW), "0s");
    }

    #[test]
    fn times_are_read_in_each_form() {
        for text in [
            "2026-01-01T03:00:00Z",
            "2026-01-01T04:00:00+01:00",
            "2026-01-01 03:00:00 UTC",
        ] {
            assert_eq!(Moment::parse(text), Ok(Moment::At(NOW)), "{text}");
        }
        let midnight = earlier(3 * 3_600);
        assert_eq!(Moment::parse("2026-01-01"), Ok(Moment::At(midnight)));
        assert_eq!(Moment::parse("3h").unwrap().before(NOW), midnight);
        for text in ["", "yesterday", "2026-13-01", "-3h", "12"] {
            assert!(Moment::parse(text).is_err(), "{text}");
        }
    }
}
