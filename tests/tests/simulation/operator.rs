//! Once nothing fails any more: an operator, who helps where the framework asks for help, and nowhere else.

use std::time::Duration;

use milestone_runtime::core::record::{
    ActionRecord, ActionState, MilestoneRecord, Order, Status, UndoState, VerifyState,
};
use tokio::time::sleep;

use super::{client, world::World};

/// How often the operator looks.
const EVERY: Duration = Duration::from_millis(700);

/// How long it may take until all has ended, once nothing fails any more. Every step of the longest way (a lease that must end, attempts
/// with their waits, an undo of each) is well within it.
const BOUND: Duration = Duration::from_secs(90);

/// Helps until all milestones have ended.
pub(crate) async fn settle(world: &World) {
    let began = world.log.now();
    let mut rng = world.rng();
    let mut sent = 0;
    loop {
        let records = world.court.records();
        let mut open: Vec<&MilestoneRecord> = records
            .iter()
            .filter(|record| !record.state.is_terminal() || !record.inbox.is_empty())
            .collect();
        for record in &records {
            // A failed one may be tried again, some of them.
            if record.state == Status::Failed
                && record.inbox.is_empty()
                && rng.u32(0..3) == 0
                && sent < 40
            {
                sent += 1;
                client::send(world, &record.id, Order::Retry, sent).await;
                open.push(record);
            }
        }
        if open.is_empty() {
            return;
        }
        if u128::from(world.log.now() - began) > BOUND.as_millis() || world.log.found().is_some() {
            for record in open {
                world.log.wrong(format_args!(
                    "{} has not ended {BOUND:?} after the last fault: {record:?}",
                    record.id
                ));
            }
            return;
        }
        for record in open {
            if let Some(order) = help(world, record, rng.bool()) {
                sent += 1;
                client::send(world, &record.id, order, sent).await;
            }
        }
        sleep(EVERY).await;
    }
}

/// What is to be said, where the milestone waits for somebody to say something.
fn help(world: &World, record: &MilestoneRecord, waive: bool) -> Option<Order> {
    if !record.inbox.is_empty() {
        return None;
    }
    if record.hold.is_some() {
        return Some(Order::Resume);
    }
    // What verifies itself needs nobody, unless that has failed for good.
    let needs_word = |action: &ActionRecord| {
        let verify = action.verify.as_ref();
        action.state == ActionState::InDoubt
            && (action.undo.is_none() || record.unwind.is_none())
            && verify.is_none_or(|verify| verify.state == VerifyState::Failed)
            && action
                .settle_after
                .is_some_and(|after| after <= world.court.time())
    };
    if record.actions.iter().any(needs_word) {
        let ask_again = matches!(record.state, Status::InDoubt | Status::Undoing)
            && record.actions.iter().any(|action| {
                let verify = action.verify.as_ref();
                verify.is_some_and(|verify| verify.state == VerifyState::Failed)
            });
        if ask_again && waive {
            return Some(Order::Retry);
        }
        return client::resolve(world, record, needs_word);
    }
    let mut actions = record.actions.iter();
    let failed = actions.find(|action| {
        let undo = action.undo.as_ref();
        undo.is_some_and(|undo| undo.state == UndoState::Failed)
    })?;
    Some(if waive {
        Order::Waive {
            action: failed.name.clone(),
        }
    } else {
        Order::Retry
    })
}
