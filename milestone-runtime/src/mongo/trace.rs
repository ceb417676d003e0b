//! What the toolkit leaves behind in the database until it is of no more use: markers on documents of the application, and witnesses.

use bson::{Bson, DateTime, Document, doc};
use milestone_core::record::MilestoneId;

/// The field of an application's document that lists the writes which may be repeated.
pub(crate) const MARKERS: &str = "pendingMilestones";

/// Says that a write of an action has been applied to the document on which it stands. MongoDB's guide to two-phase commits calls its
/// list of them `pendingTransactions`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Marker {
    pub(crate) milestone: MilestoneId,
    /// When the milestone was started: once it is removed, another one may be started with its id.
    pub(crate) started: DateTime,
    pub(crate) action: String,
    /// Tells two writes to one document by one action apart; empty, if there is one.
    pub(crate) label: String,
    /// Whether the write has been taken back, or never will come.
    pub(crate) undone: bool,
}

impl Marker {
    /// The marker as it is searched for.
    pub(crate) fn key(&self) -> Document {
        doc! {
            "milestone": self.milestone.clone(),
            "started": self.started,
            "action": &self.action,
            "label": &self.label,
            "undone": self.undone,
        }
    }

    /// The marker as it is stored at some time.
    pub(crate) fn stored(&self, at: DateTime) -> Document {
        let mut marker = self.key();
        marker.insert("at", at);
        marker
    }

    pub(crate) fn read(marker: &Document) -> Option<Self> {
        Some(Self {
            milestone: MilestoneId::try_from(marker.get("milestone")?).ok()?,
            started: *marker.get_datetime("started").ok()?,
            action: marker.get_str("action").ok()?.to_owned(),
            label: marker.get_str("label").ok()?.to_owned(),
            undone: marker.get_bool("undone").ok()?,
        })
    }

    /// Where it is noted that the write was applied, once the marker is gone from its document.
    pub(crate) fn witness(&self, place: &Place) -> WitnessKey {
        let undone = if self.undone { " undone" } else { "" };
        let label = if self.label.is_empty() {
            String::new()
        } else {
            format!(" {}", self.label)
        };
        WitnessKey {
            milestone: self.milestone.clone(),
            action: self.action.clone(),
            what: format!(
                "once{undone}{label} {} {}.{} {}",
                self.started.timestamp_millis(),
                place.database,
                place.collection,
                place.id
            ),
        }
    }
}

/// A document of the application.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) database: String,
    pub(crate) collection: String,
    pub(crate) id: Bson,
}

/// The `_id` of a witness: a document that tells what an action has done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WitnessKey {
    pub(crate) milestone: MilestoneId,
    pub(crate) action: String,
    /// What of it.
    pub(crate) what: String,
}

impl WitnessKey {
    pub(crate) fn new(
        milestone: &MilestoneId,
        action: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Self {
            milestone: milestone.clone(),
            action: action.into(),
            what: what.into(),
        }
    }

    pub(crate) fn to_bson(&self) -> Document {
        doc! { "milestone": self.milestone.clone(), "action": &self.action, "what": &self.what }
    }

    pub(crate) fn read(id: &Document) -> Option<Self> {
        Some(Self {
            milestone: MilestoneId::try_from(id.get("milestone")?).ok()?,
            action: id.get_str("action").ok()?.to_owned(),
            what: id.get_str("what").ok()?.to_owned(),
        })
    }
}

/// One thing that was left behind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Trace {
    Marker { place: Place, marker: Marker },
    Witness(WitnessKey),
}

impl Trace {
    pub(crate) fn action(&self) -> &str {
        match self {
            Self::Marker { marker, .. } => &marker.action,
            Self::Witness(key) => &key.action,
        }
    }

    /// The same for the same trace.
    pub(crate) fn key(&self) -> WitnessKey {
        match self {
            Self::Marker { place, marker } => marker.witness(place),
            Self::Witness(key) => key.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker() -> Marker {
        Marker {
            milestone: "t-1".into(),
            started: DateTime::from_millis(3),
            action: "debit".to_owned(),
            label: "fee".to_owned(),
            undone: false,
        }
    }

    #[test]
    fn a_marker_explains_itself_and_comes_back() {
        let at = DateTime::from_millis(7);
        let stored = marker().stored(at);
        let expected = doc! {
            "milestone": "t-1", "started": DateTime::from_millis(3), "action": "debit", "label": "fee", "undone": false, "at": at,
        };
        assert_eq!(stored, expected);
        assert_eq!(Marker::read(&stored), Some(marker()));
        assert_eq!(Marker::read(&doc! { "milestone": "t-1" }), None);
    }

    #[test]
    fn a_witness_comes_back() {
        let place = Place {
            database: "bank".to_owned(),
            collection: "accounts".to_owned(),
            id: Bson::from("ann"),
        };
        let key = marker().witness(&place);
        assert_eq!(key.what, r#"once fee 3 bank.accounts "ann""#);
        assert_eq!(WitnessKey::read(&key.to_bson()), Some(key));
    }
}
