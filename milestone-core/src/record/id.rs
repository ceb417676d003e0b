//! What a milestone is known by.

use std::fmt;

use bson::{Bson, oid::ObjectId};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// The `_id` of a milestone: made by the runtime, or the caller's string, which then is the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum MilestoneId {
    /// Made by the runtime.
    ObjectId(ObjectId),
    /// Given by the caller.
    String(String),
}

impl MilestoneId {
    /// A new one that no other milestone has.
    #[must_use]
    pub fn new() -> Self {
        Self::ObjectId(ObjectId::new())
    }
}

impl Default for MilestoneId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for MilestoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ObjectId(id) => write!(f, "{id}"),
            Self::String(id) => f.write_str(id),
        }
    }
}

impl From<ObjectId> for MilestoneId {
    fn from(id: ObjectId) -> Self {
        Self::ObjectId(id)
    }
}

impl From<&str> for MilestoneId {
    fn from(id: &str) -> Self {
        Self::String(id.to_owned())
    }
}

impl From<String> for MilestoneId {
    fn from(id: String) -> Self {
        Self::String(id)
    }
}

impl From<MilestoneId> for Bson {
    fn from(id: MilestoneId) -> Self {
        match id {
            MilestoneId::ObjectId(id) => Self::ObjectId(id),
            MilestoneId::String(id) => Self::String(id),
        }
    }
}

impl TryFrom<&Bson> for MilestoneId {
    type Error = &'static str;

    fn try_from(value: &Bson) -> Result<Self, Self::Error> {
        match value {
            Bson::ObjectId(id) => Ok(Self::ObjectId(*id)),
            Bson::String(id) => Ok(Self::String(id.clone())),
            _ => Err("the _id of a milestone is an ObjectId or a string"),
        }
    }
}

impl<'de> Deserialize<'de> for MilestoneId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(&Bson::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
