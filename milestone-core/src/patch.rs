//! A change of one stored milestone: applied to a document in memory, or rendered as a classical MongoDB update.
//!
//! A patch names the fields that it sets and unsets by path, and the attempts that it adds in front of the report. No path of a
//! patch is the beginning of another, so two patches merge field by field, and MongoDB finds no conflict in the result.

mod bytes;

use std::collections::{BTreeMap, BTreeSet};

pub use bytes::PatchError;

use bson::{Bson, Document, doc};

/// A change of one stored milestone, from one `rev` to the next. It comes from [`crate::machine::advance`] or [`crate::lease::claim`].
///
/// ```
/// # use bson::{DateTime, doc};
/// # use milestone_core::{graph::Action, lease::claim, limits::Limits, machine::NewMilestone, record::{Lease, MilestoneRecord}};
/// # let (now, limits) = (DateTime::from_millis(0), Limits::new());
/// # let plan = Action::new("debit").into_plan(|_| None).unwrap();
/// # let mut record = MilestoneRecord::new(NewMilestone::new("Transfer", plan), now, &limits).unwrap();
/// # let lease = Lease { owner: "w".into(), token: "t".into(), since: now, until: now };
/// let mut document = record.to_document()?;
/// let patch = claim(&mut record, lease);
///
/// // In memory, or by a `MongoDB` server: the same.
/// patch.apply_to(&mut document, 2)?;
/// assert_eq!(document.get_i64("epoch")?, 1);
/// assert_eq!(patch.to_update(2).get_document("$set")?.get_i64("epoch")?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a patch does nothing until it is committed"]
pub struct Patch {
    set: BTreeMap<String, Bson>,
    unset: BTreeSet<String>,
    report: ReportChange,
    mail: Option<i64>,
    releases: bool,
}

/// What happens to the report.
#[derive(Clone, Debug, Default, PartialEq)]
enum ReportChange {
    #[default]
    None,
    /// These come in front of it, newest first.
    Push(Vec<Bson>),
    /// It is replaced, since it had to be made smaller.
    Replace(Vec<Bson>),
}

impl Patch {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty() && self.report == ReportChange::None
    }

    /// The number of commands that must have come, no more, for the patch to be good: it begins, hands back or ends, and so must
    /// not overlook a command.
    #[must_use]
    pub const fn mail(&self) -> Option<i64> {
        self.mail
    }

    /// Whether it gives up the lease: it hands the milestone back, or ends it.
    #[must_use]
    pub const fn releases(&self) -> bool {
        self.releases
    }

    /// The value that it sets at `path`, if it sets one there.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<&Bson> {
        self.set.get(path)
    }

    /// The values that it sets, with their paths.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Bson)> {
        self.set.iter().map(|(path, value)| (path.as_str(), value))
    }

    pub(crate) fn set(&mut self, path: impl Into<String>, value: impl Into<Bson>) {
        let path = path.into();
        self.unset.remove(&path);
        self.set.insert(path, value.into());
    }

    pub(crate) fn unset(&mut self, path: impl Into<String>) {
        let path = path.into();
        self.set.remove(&path);
        self.unset.insert(path);
    }

    pub(crate) fn guard(&mut self, mail: i64) {
        self.mail = Some(mail);
    }

    pub(crate) fn release(&mut self) {
        self.releases = true;
    }

    pub(crate) fn push_attempt(&mut self, attempt: Bson) {
        match &mut self.report {
            ReportChange::None => self.report = ReportChange::Push(vec![attempt]),
            ReportChange::Push(attempts) | ReportChange::Replace(attempts) => {
                attempts.insert(0, attempt);
            }
        }
    }

    pub(crate) fn replace_report(&mut self, report: Vec<Bson>) {
        self.report = ReportChange::Replace(report);
    }

    /// A patch made by hand, for the tests of stores. In a program, patches come from the state machine.
    #[doc(hidden)]
    pub fn for_tests(
        set: Vec<(String, Bson)>,
        unset: Vec<String>,
        mail: Option<i64>,
        releases: bool,
    ) -> Self {
        let (set, unset) = (set.into_iter().collect(), unset.into_iter().collect());
        Self {
            set,
            unset,
            report: ReportChange::None,
            mail,
            releases,
        }
    }

    /// Adds an attempt in front of the report, for the tests of stores.
    #[doc(hidden)]
    pub fn attempt_for_tests(mut self, attempt: Bson) -> Self {
        self.push_attempt(attempt);
        self
    }

    /// Adds a patch that was made after this one.
    pub fn merge(&mut self, later: Self) {
        for (path, value) in later.set {
            self.set(path, value);
        }
        for path in later.unset {
            self.unset(path);
        }
        match (later.report, &mut self.report) {
            (ReportChange::None, _) => {}
            (
                ReportChange::Push(mut newer),
                ReportChange::Push(older) | ReportChange::Replace(older),
            ) => {
                newer.append(older);
                *older = newer;
            }
            (report, own) => *own = report,
        }
        self.mail = later.mail.or(self.mail);
        self.releases |= later.releases;
    }

    /// The update that a `MongoDB` server carries out, which also sets `rev`. It is a classical one, with `$set`, `$unset` and `$push`: in
    /// a pipeline, `actions.3.x` would set the field in every action.
    #[must_use]
    pub fn to_update(&self, rev: i64) -> Document {
        let mut set: Document = self
            .set
            .iter()
            .map(|(path, value)| (path.clone(), value.clone()))
            .collect();
        set.insert("rev", rev);
        let mut update = Document::new();
        match &self.report {
            ReportChange::None => {}
            ReportChange::Push(attempts) => {
                update.insert(
                    "$push",
                    doc! { "report": { "$each": attempts.clone(), "$position": 0 } },
                );
            }
            ReportChange::Replace(report) => {
                set.insert("report", report.clone());
            }
        }
        update.insert("$set", set);
        if !self.unset.is_empty() {
            let unset: Document = self
                .unset
                .iter()
                .map(|path| (path.clone(), Bson::from(true)))
                .collect();
            update.insert("$unset", unset);
        }
        update
    }

    /// Applies it to a document in memory, as the server would, and sets `rev`. Fields that it does not name stay.
    ///
    /// # Errors
    /// [`PathError`] if the document is not one that the patch can have been made for; it is then changed in part.
    pub fn apply_to(&self, document: &mut Document, rev: i64) -> Result<(), PathError> {
        for (path, value) in &self.set {
            let (parent, key) = parent_of(document, path)?;
            parent.insert(key, value.clone());
        }
        for path in &self.unset {
            let (parent, key) = parent_of(document, path)?;
            parent.remove(key);
        }
        match &self.report {
            ReportChange::None => {}
            ReportChange::Push(attempts) => match document.get_array_mut("report") {
                Ok(report) => {
                    report.splice(0..0, attempts.iter().cloned());
                }
                Err(_) => {
                    document.insert("report", attempts.clone());
                }
            },
            ReportChange::Replace(report) => {
                document.insert("report", report.clone());
            }
        }
        document.insert("rev", rev);
        Ok(())
    }

    /// About how many bytes it adds to the document at most; what it replaces is not subtracted.
    #[must_use]
    pub fn size(&self) -> usize {
        let set: usize = self
            .set
            .iter()
            .map(|(path, value)| path.len() + size_of_value(value))
            .sum();
        let report: usize = match &self.report {
            ReportChange::None => 0,
            ReportChange::Push(attempts) | ReportChange::Replace(attempts) => {
                attempts.iter().map(size_of_value).sum()
            }
        };
        set + report
    }
}

/// A path of a patch leads nowhere in a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no `{path}` in the document")]
pub struct PathError {
    /// The path.
    pub path: String,
}

/// The document that holds the last part of a path.
fn parent_of<'d, 'p>(
    document: &'d mut Document,
    path: &'p str,
) -> Result<(&'d mut Document, &'p str), PathError> {
    let wrong = || PathError {
        path: path.to_owned(),
    };
    let mut parent = document;
    let mut parts = path.split('.');
    let key = parts.next_back().ok_or_else(wrong)?;
    while let Some(part) = parts.next() {
        let value = parent.get_mut(part).ok_or_else(wrong)?;
        parent = match value {
            Bson::Document(document) => document,
            Bson::Array(items) => {
                let index: usize = parts
                    .next()
                    .and_then(|index| index.parse().ok())
                    .ok_or_else(wrong)?;
                items
                    .get_mut(index)
                    .and_then(Bson::as_document_mut)
                    .ok_or_else(wrong)?
            }
            _ => return Err(wrong()),
        };
    }
    Ok((parent, key))
}

/// The size of a value in a document, in bytes, without its key.
#[must_use]
pub fn size_of_value(value: &Bson) -> usize {
    match value {
        Bson::Double(_) | Bson::Int64(_) | Bson::DateTime(_) | Bson::Timestamp(_) => 8,
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => 5 + text.len(),
        Bson::Array(items) => {
            5 + items
                .iter()
                .enumerate()
                .map(|(index, item)| 2 + digits(index) + size_of_value(item))
                .sum::<usize>()
        }
        Bson::Document(document) => {
            5 + document
                .iter()
                .map(|(key, item)| 2 + key.len() + size_of_value(item))
                .sum::<usize>()
        }
        Bson::Boolean(_) => 1,
        Bson::RegularExpression(regex) => {
            2 + regex.pattern.as_str().len() + regex.options.as_str().len()
        }
        Bson::JavaScriptCodeWithScope(code) => {
            9 + code.code.len() + size_of_value(&Bson::Document(code.scope.clone()))
        }
        Bson::Int32(_) => 4,
        Bson::Binary(binary) => 9 + binary.bytes.len(),
        Bson::ObjectId(_) => 12,
        Bson::Decimal128(_) => 16,
        Bson::DbPointer(_) => 64,
        Bson::Null | Bson::Undefined | Bson::MaxKey | Bson::MinKey => 0,
    }
}

const fn digits(index: usize) -> usize {
    if index < 10 {
        1
    } else {
        1 + index.ilog10() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(number: i32) -> Patch {
        let mut patch = Patch::default();
        patch.push_attempt(doc! { "number": number }.into());
        patch
    }

    #[test]
    fn a_later_patch_wins_field_by_field() {
        let mut first = pushed(1);
        first.set("state", "running");
        first.set("actions.0.at", 1);
        let mut second = pushed(2);
        second.set("state", "completed");
        second.unset("actions.0.at");
        first.merge(second);
        let expected = doc! {
            "$push": { "report": { "$each": [{ "number": 2 }, { "number": 1 }], "$position": 0 } },
            "$set": { "state": "completed", "rev": 5_i64 },
            "$unset": { "actions.0.at": true },
        };
        assert_eq!(first.to_update(5), expected);
    }

    #[test]
    fn applying_reaches_into_arrays_and_keeps_the_rest() {
        let mut patch = pushed(2);
        patch.set("actions.1.state", "completed");
        patch.unset("lease");
        let mut document = doc! {
            "rev": 1_i64, "lease": { "token": "t" }, "extra": 7,
            "actions": [{ "state": "completed" }, { "state": "running", "extra": 8 }], "report": [{ "number": 1 }],
        };
        patch.apply_to(&mut document, 2).unwrap();
        let expected = doc! {
            "rev": 2_i64, "extra": 7,
            "actions": [{ "state": "completed" }, { "state": "completed", "extra": 8 }],
            "report": [{ "number": 2 }, { "number": 1 }],
        };
        assert_eq!(document, expected);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_an_error() {
        let mut patch = Patch::default();
        patch.set("actions.3.state", "ready");
        let error = patch.apply_to(&mut doc! { "actions": [] }, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no `actions.3.state` in the document"
        );
    }

    #[test]
    fn sizes_are_those_of_the_encoding() {
        let document = doc! {
            "a": 1, "b": 2_i64, "c": "text", "d": [1, { "e": true }, null], "f": bson::oid::ObjectId::new(), "g": 1.5,
            "h": bson::DateTime::now(), "i": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] },
        };
        let bytes = bson::serialize_to_vec(&document).unwrap();
        let size = size_of_value(&Bson::Document(document));
        assert!(
            size >= bytes.len() && size <= bytes.len() + 8,
            "{size} for {}",
            bytes.len()
        );
    }
}
