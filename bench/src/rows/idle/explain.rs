//! What the server says of how it finds what is due.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};
use mongodb::Database;

use crate::{
    row::{Row, Target},
    statistics::float,
};

/// How the query of a poll was carried out.
pub(super) struct Plan {
    stages: Vec<String>,
    /// Entries of the index that were looked at, for each milestone that could be taken.
    keys_each: f64,
    /// The same where ten times as much is due as can be taken.
    more: Option<f64>,
}

/// Lets the server explain a query that it has answered before, when so many can be taken.
pub(super) async fn plan(database: &Database, look: &Document, taken: usize) -> Result<Plan> {
    let mut query = look.clone();
    for of_the_driver in [
        "lsid",
        "$db",
        "$clusterTime",
        "$readPreference",
        "readConcern",
    ] {
        query.remove(of_the_driver);
    }
    let explained = database
        .run_command(doc! { "explain": query, "verbosity": "executionStats" })
        .await?;
    let planner = explained.get_document("queryPlanner")?;
    let mut stages = Vec::new();
    collect_stages(planner.get_document("winningPlan")?, &mut stages);
    let statistics = explained.get_document("executionStats")?;
    let keys = match statistics.get("totalKeysExamined") {
        Some(Bson::Int32(keys)) => usize::try_from(*keys)?,
        Some(Bson::Int64(keys)) => usize::try_from(*keys)?,
        _ => None.context("the server does not say how many keys it examined")?,
    };
    Ok(Plan {
        stages,
        keys_each: float(keys) / float(taken),
        more: None,
    })
}

fn collect_stages(plan: &Document, stages: &mut Vec<String>) {
    if let Ok(stage) = plan.get_str("stage") {
        stages.push(stage.to_owned());
    }
    for value in plan.iter().map(|(_, value)| value) {
        match value {
            Bson::Document(inner) => collect_stages(inner, stages),
            Bson::Array(inner) => {
                for inner in inner.iter().filter_map(Bson::as_document) {
                    collect_stages(inner, stages);
                }
            }
            _ => {}
        }
    }
}

impl Plan {
    /// This one, where that one is of the same query when more was due.
    pub(super) fn beside(self, more: &Self) -> Self {
        Self {
            more: Some(more.keys_each),
            ..self
        }
    }

    pub(super) fn row(&self, finished: usize) -> Row {
        let is_by_index = self.stages.iter().any(|stage| stage == "IXSCAN");
        // A scan of the whole collection is no figure of this row.
        let keys = if is_by_index {
            self.keys_each
        } else {
            f64::INFINITY
        };
        let more = self.more.unwrap_or(f64::NAN);
        Row::alone(
            format!("idle, {finished} finished: index keys examined for each that is taken"),
            "keys",
            keys,
        )
        .target(Target::AtMost(2.0))
        .note(format!(
            "as the server explains the query of a poll: {}; as much is due as there are places; {more:.1} where ten times as much is due, of \
             which a limit leaves three for each that is taken",
            self.stages.join(" < ")
        ))
    }
}
