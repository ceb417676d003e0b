//! Whoever starts milestones and says something about them, at whatever moment.

use std::time::Duration;

use milestone_runtime::{
    StartError,
    core::record::{
        ActionRecord, ActionState, Command, MilestoneId, MilestoneRecord, Order, UndoState,
    },
    store::{Sent, Store},
};
use tokio::time::{sleep, timeout};

use super::{story::Said, world::World};

/// Starts a milestone until somebody says that it is stored.
pub(crate) async fn starts(world: &World, plan: usize) {
    let plan = &world.story.milestones[plan];
    let id = MilestoneId::from(plan.id.as_str());
    let mut rng = world.rng();
    sleep(plan.at).await;
    let mut unknown = false;
    for _ in 0..200 {
        let workers = world.workers();
        if workers.is_empty() {
            sleep(Duration::from_millis(100)).await;
            continue;
        }
        let worker = &workers[rng.usize(0..workers.len())];
        world.log.note(&worker.name, format_args!("start {id}"));
        let start = worker
            .runtime
            .start("Simulated", plan.graph.clone(), plan.id.as_str())
            .id(plan.id.as_str());
        let start = match plan.deadline {
            Some(deadline) => start.deadline(deadline),
            None => start,
        };
        // A process that is frozen does not answer.
        let started = timeout(Duration::from_secs(8), async { start.await }).await;
        let is_stored = world.court.record(&id).is_some();
        match started {
            Ok(Ok(_)) => {
                world
                    .log
                    .note(&worker.name, format_args!("{id} is started"));
                if !is_stored {
                    world
                        .log
                        .wrong(format_args!("{id} is started, and not stored"));
                }
                return;
            }
            Ok(Err(error)) => {
                let code = error.code();
                world
                    .log
                    .note(&worker.name, format_args!("start of {id}: {code}"));
                match error {
                    StartError::NotStored { .. } if !unknown => {
                        // No copy of it may come later, either.
                        sleep(Duration::from_millis(rng.u64(0..6_000))).await;
                        if world.court.record(&id).is_some() {
                            world.log.wrong(format_args!(
                                "{id} is stored, and its start says for sure that it is not"
                            ));
                        }
                    }
                    StartError::NotStored { .. }
                    | StartError::Unknown { .. }
                    | StartError::Closed => unknown = true,
                    error => world.log.wrong(format_args!("start of {id}: {error}")),
                }
            }
            Err(_) => unknown = true,
        }
        sleep(Duration::from_millis(rng.u64(0..1_500))).await;
    }
    world.log.wrong(format_args!("{id} cannot be started"));
}

/// Says what the story has for a milestone.
pub(crate) async fn speaks(world: &World, plan: usize) {
    let plan = &world.story.milestones[plan];
    let id = MilestoneId::from(plan.id.as_str());
    let wire = world.wire("client");
    let mut rng = world.rng();
    let mut commands = plan.commands.clone();
    commands.sort_by_key(|(at, _)| *at);
    let mut passed = Duration::ZERO;
    for (number, (at, said)) in commands.into_iter().enumerate() {
        sleep(at.saturating_sub(passed)).await;
        passed = passed.max(at);
        let Some(record) = world.court.record(&id) else {
            continue;
        };
        let Some(order) = order(world, &record, said) else {
            continue;
        };
        if rng.bool() {
            through_a_worker(world, &id, order, rng.usize(0..3)).await;
            continue;
        }
        let command = Command {
            id: format!("{id}-{number}"),
            order,
            by: "client".to_owned(),
            at: world.court.time(),
        };
        for _ in 0..5 {
            if wire.send(id.clone(), command.clone()).await.is_ok() {
                break;
            }
            sleep(Duration::from_millis(rng.u64(0..500))).await;
        }
    }
}

/// What is said, as a command: the truth, as far as it is about what took effect.
fn order(world: &World, record: &MilestoneRecord, said: Said) -> Option<Order> {
    let reason = "the seed says so".to_owned();
    Some(match said {
        Said::Cancel => Order::Cancel { reason },
        Said::Pause => Order::Pause { reason },
        Said::Resume => Order::Resume,
        Said::Retry => Order::Retry,
        Said::Resolve => return resolve(world, record, |_| true),
        Said::Waive => {
            let mut actions = record.actions.iter();
            let failed = actions.find(|action| {
                let undo = action.undo.as_ref();
                undo.is_some_and(|undo| undo.state == UndoState::Failed)
            });
            Order::Waive {
                action: failed?.name.clone(),
            }
        }
    })
}

/// Says of an action that is in doubt what the ledger says, once that cannot change any more.
pub(crate) fn resolve(
    world: &World,
    record: &MilestoneRecord,
    wanted: impl Fn(&ActionRecord) -> bool,
) -> Option<Order> {
    let mut actions = record.actions.iter();
    let action = actions.find(|action| action.state == ActionState::InDoubt && wanted(action))?;
    let applied = world.ledger.took_effect(&record.id, &action.name)?;
    if !applied {
        world
            .ledger
            .said_not_applied(&record.id, &action.name, action.attempts);
    }
    Some(Order::Resolve {
        action: action.name.clone(),
        attempt: Some(action.attempts),
        applied,
        output: bson::doc! { "of": &action.name, "resolved": true }.into(),
    })
}

/// As an application says it.
async fn through_a_worker(world: &World, id: &MilestoneId, order: Order, which: usize) {
    let workers = world.workers();
    let Some(worker) = workers.get(which % workers.len().max(1)) else {
        return;
    };
    let name = order.name();
    let said = timeout(
        Duration::from_secs(10),
        worker.runtime.command(id.clone(), order),
    );
    let told = match said.await {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => error.code().to_owned(),
        Err(_) => "no answer".to_owned(),
    };
    world
        .log
        .note(&worker.name, format_args!("{name} of {id}: {told}"));
}

/// Sends a command while nothing fails.
pub(crate) async fn send(world: &World, id: &MilestoneId, order: Order, number: u32) {
    let command = Command {
        id: format!("{id}-operator-{number}"),
        order,
        by: "operator".to_owned(),
        at: world.court.time(),
    };
    match world.court.send("operator", id.clone(), command).await {
        Ok(Sent::Delivered | Sent::Refused(_)) => {}
        other => world
            .log
            .wrong(format_args!("a command to {id} is answered {other:?}")),
    }
}
