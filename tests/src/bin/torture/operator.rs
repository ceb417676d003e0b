//! The operator: he looks at the effects of plain actions in doubt, when their old attempts can no longer take effect, and says what became
//! of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bson::DateTime;
use milestone_runtime::{
    Filter, Page, Status,
    core::record::{ActionState, MilestoneRecord, Order},
};
use milestone_tests::journal::{self, What};

use crate::stage::Stage;

/// How long he waits for an answer. A command that was sent is carried out all the same.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(stage: Arc<Stage>, over: Arc<AtomicBool>) {
    loop {
        let filter = Filter::new().state(Status::InDoubt);
        if let Ok(listed) = stage.client.list(filter, Page::default()).await {
            let resolutions = listed.records.iter().map(|record| resolve(&stage, record));
            futures_util::future::join_all(resolutions).await;
        }
        let wait = if over.load(Ordering::SeqCst) {
            200
        } else {
            1_000
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

async fn resolve(stage: &Stage, record: &MilestoneRecord) {
    let doubt = |action: &&milestone_runtime::core::record::ActionRecord| {
        action.state == ActionState::InDoubt
    };
    let Some(action) = record.actions.iter().find(doubt) else {
        return;
    };
    // The server runs on this machine, or on one whose clock is about the same: the settle time has room for that.
    if action.settle_after.is_none_or(|at| at > DateTime::now()) {
        return;
    }
    let id = record.id.to_string();
    let entries = journal::read(&stage.program.journal);
    let effect = entries.iter().find(|entry| {
        entry.milestone == id && entry.action == action.name && entry.what == What::Ended
    });
    if effect.is_none() {
        stage.allow_again(&id);
    }
    let order = Order::Resolve {
        action: action.name.clone(),
        attempt: Some(action.attempts),
        applied: effect.is_some(),
        output: effect.map(|entry| entry.mark.clone()).into(),
    };
    // Whatever came of it, what is still in doubt is looked at again.
    let _ = tokio::time::timeout(PATIENCE, stage.client.command(record.id.clone(), order)).await;
}
