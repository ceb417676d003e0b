//! A milestone that has ended, for those who wait for it.

use std::sync::Arc;

use milestone_core::record::MilestoneRecord;

use super::held::Held;
use crate::action::StoredValue;

/// A milestone that has ended. Most of those who wait ask for its outputs alone, so its parameters stay encoded until somebody asks for
/// them.
#[derive(Debug)]
pub(crate) struct Ended {
    record: MilestoneRecord,
    /// Those of the record, if they are not in it.
    parameters: Option<Arc<StoredValue>>,
}

impl Ended {
    /// All of it but, perhaps, the parameters.
    pub(crate) const fn outline(&self) -> &MilestoneRecord {
        &self.record
    }

    /// All of it.
    pub(crate) fn whole(&self) -> MilestoneRecord {
        let mut record = self.record.clone();
        if let Some(parameters) = &self.parameters {
            record.parameters = parameters.to_tree();
        }
        record
    }
}

impl From<MilestoneRecord> for Ended {
    fn from(record: MilestoneRecord) -> Self {
        Self {
            record,
            parameters: None,
        }
    }
}

impl From<Held> for Ended {
    fn from(held: Held) -> Self {
        Self {
            record: held.record,
            parameters: Some(held.parameters),
        }
    }
}
