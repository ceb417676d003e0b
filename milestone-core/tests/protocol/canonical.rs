//! One form for all documents that mean the same: what only people read is blanked, and dates are relative to now.
//!
//! Now is always [`NOW`]. When time passes, all dates that are written anywhere, in documents and in patches on their way, move back.

use bson::{Bson, DateTime, Document, doc};
use milestone_core::{patch::Patch, record::MilestoneRecord};

/// The time, always.
pub(crate) const NOW: DateTime = DateTime::from_millis(1_000_000);

/// How long a tick is: a lease, and the wait before a retry.
pub(crate) const TICK: i64 = 1000;

/// A time so many ticks from now.
pub(crate) fn in_ticks(ticks: i8) -> DateTime {
    DateTime::from_millis(NOW.timestamp_millis() + i64::from(ticks) * TICK)
}

/// How many ticks from now.
pub(crate) fn ticks_until(at: DateTime) -> i8 {
    let ticks = (at.timestamp_millis() - NOW.timestamp_millis()) / TICK;
    i8::try_from(ticks).expect("few")
}

/// The canonical form of a record, after so many ticks.
pub(crate) fn record(record: &MilestoneRecord, ticks: i64) -> MilestoneRecord {
    let mut document = record.to_document().expect("a document");
    normalise_document(&mut document, ticks);
    let mut record = MilestoneRecord::from_document(document).expect("a milestone");
    // In which order attempts of different actions ended is of no account.
    record.report.sort_by(|one, other| {
        (&one.action, one.phase, other.number).cmp(&(&other.action, other.phase, one.number))
    });
    record
}

/// The canonical form of a patch, after so many ticks.
pub(crate) fn patch(patch: &Patch, ticks: i64) -> Patch {
    let whole = rebuilt(patch, |_, _| {});
    assert_eq!(&whole, patch, "a patch is what its update says");
    rebuilt(patch, |path, value| normalise(path, value, ticks))
}

/// A patch from the update that it renders, with each of its values changed.
fn rebuilt(patch: &Patch, change: impl Fn(&str, &mut Bson)) -> Patch {
    let update = patch.to_update(0);
    let fields = |name: &str| update.get_document(name).cloned().unwrap_or_default();
    let mut set = Vec::new();
    for (path, mut value) in fields("$set") {
        if path != "rev" {
            change(&path, &mut value);
            set.push((path, value));
        }
    }
    let unset = fields("$unset").keys().cloned().collect();
    let pushed = fields("$push");
    let pushed = pushed
        .get_document("report")
        .and_then(|report| report.get_array("$each"));
    let patch = Patch::for_tests(set, unset, patch.mail(), patch.releases());
    let attempts = pushed.into_iter().flatten().rev();
    attempts.fold(patch, |patch, attempt| {
        let mut attempt = attempt.clone();
        change("report", &mut attempt);
        patch.attempt_for_tests(attempt)
    })
}

/// A patch as bytes, to tell two apart.
pub(crate) fn key_of(patch: &Patch) -> Vec<u8> {
    let mail = patch.mail();
    let whole = doc! { "update": patch.to_update(0), "mail": mail, "releases": patch.releases() };
    bson::serialize_to_vec(&whole).expect("a document")
}

/// Fields that only people read.
const FOR_PEOPLE: [&str; 5] = ["answers", "inbox", "hold", "unwind", "report"];

fn normalise_document(document: &mut Document, ticks: i64) {
    for (key, value) in document.iter_mut() {
        if FOR_PEOPLE.contains(&key.as_str()) {
            blank(value);
        } else {
            normalise(key, value, ticks);
        }
    }
}

/// Moves the dates of a value that is set at a path.
fn normalise(path: &str, value: &mut Bson, ticks: i64) {
    let key = path.rsplit('.').next().unwrap_or(path);
    match value {
        _ if FOR_PEOPLE.contains(&key) => blank(value),
        Bson::DateTime(at) => *at = moved(key, *at, ticks),
        Bson::Document(document) => normalise_document(document, ticks),
        Bson::Array(items) => {
            for item in items {
                normalise(key, item, ticks);
            }
        }
        _ => {}
    }
}

/// How long a lease has been over, or something has been due, is of no account; a lease that ends now is not yet over.
fn moved(key: &str, at: DateTime, ticks: i64) -> DateTime {
    let earliest = match key {
        "until" => in_ticks(-1),
        "at" | "settleAfter" => NOW,
        _ => return NOW,
    };
    DateTime::from_millis(at.timestamp_millis() - ticks * TICK).max(earliest)
}

fn blank(value: &mut Bson) {
    match value {
        Bson::DateTime(at) => *at = NOW,
        Bson::Document(document) => document.iter_mut().for_each(|(_, value)| blank(value)),
        Bson::Array(items) => items.iter_mut().for_each(blank),
        _ => {}
    }
}
