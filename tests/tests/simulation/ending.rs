//! What must be true once all has ended.

use std::time::Duration;

use bson::Bson;
use milestone_runtime::core::record::{
    ActionKind, ActionState, Attempt, AttemptKind, MilestoneId, MilestoneRecord, Phase, Status,
    UndoState,
};
use tokio::time::{sleep, timeout};

use super::{
    ledger::{End, Run},
    world::World,
};

/// Longer than a copy can be on its way, and than a body that was given up goes on.
const QUIET: Duration = Duration::from_secs(12);

pub(crate) async fn check(world: &World) {
    if world.log.found().is_some() {
        return;
    }
    sleep(QUIET).await;
    world.court.check_all();
    let runs = world.ledger.runs();
    for run in runs.iter().filter(|run| run.end.is_none()) {
        world.log.wrong(format_args!("a body still runs: {run:?}"));
    }
    for plan in &world.story.milestones {
        let id = MilestoneId::from(plan.id.as_str());
        match world.court.record(&id) {
            Some(record) => check_milestone(world, &record, &runs),
            None => world
                .log
                .wrong(format_args!("{id} was started, and is gone")),
        }
    }
    for (id, command) in world.court.delivered() {
        let answered = world
            .court
            .record(&id)
            .is_some_and(|record| record.answers.iter().any(|answer| answer.id == command));
        if !answered {
            world.log.wrong(format_args!(
                "the command {command} to {id} was not answered"
            ));
        }
    }
    check_workers(world).await;
}

/// All of them see how it ended, and end in order.
async fn check_workers(world: &World) {
    for worker in world.workers() {
        for plan in &world.story.milestones {
            let start = worker
                .runtime
                .start("Simulated", plan.graph.clone(), plan.id.as_str())
                .id(plan.id.as_str());
            let ended = async {
                start
                    .await
                    .map_err(|error| error.to_string())?
                    .ended()
                    .await
                    .map_err(|error| error.to_string())
            };
            match timeout(Duration::from_secs(5), ended).await {
                Ok(Ok(record)) if world.court.record(&record.id).as_ref() == Some(&record) => {}
                Ok(other) => world.log.wrong(format_args!(
                    "{} sees {} as {other:?}",
                    worker.name, plan.id
                )),
                Err(_) => world.log.wrong(format_args!(
                    "{} does not see that {} has ended",
                    worker.name, plan.id
                )),
            }
        }
        if timeout(Duration::from_secs(10), worker.shutdown())
            .await
            .is_err()
        {
            world
                .log
                .wrong(format_args!("{} does not shut down", worker.name));
        }
    }
}

fn check_milestone(world: &World, record: &MilestoneRecord, runs: &[Run]) {
    let id = &record.id;
    let mut attempts = record.report.iter();
    // A claim whose reply was lost may have begun one that nobody knew of: it may run twice, and its body never began.
    let is_told_off = |attempt: &Attempt| {
        let began = runs.iter().any(|run| {
            (&run.id, &run.action, run.phase, run.attempt)
                == (id, &attempt.action, attempt.phase, attempt.number)
        });
        let action = record.action(&attempt.action);
        let is_plain = action.is_none_or(|(_, action)| !action.mode.repeatable());
        attempt.kind == Some(AttemptKind::Abandoned) && (began || is_plain)
    };
    if world.story.is_innocent() && attempts.any(is_told_off) {
        world.log.wrong(format_args!(
            "{id}: an attempt was taken for abandoned, and its worker lived all the time"
        ));
    }
    for action in &record.actions {
        if action.kind != ActionKind::Action {
            continue;
        }
        let name = &action.name;
        let of = |phase: Phase| {
            runs.iter()
                .filter(move |run| run.id == *id && run.action == *name && run.phase == phase)
        };
        let effects = of(Phase::Do).filter(|run| run.effect.is_some()).count();
        if action.state == ActionState::Completed && effects == 0 {
            world.log.wrong(format_args!(
                "{id}/{name} is complete, and never took effect"
            ));
        }
        if let Some(output) = &action.output {
            check_output(world, record, name, output);
        }
        if record.state == Status::Completed && action.state != ActionState::Completed {
            world.log.wrong(format_args!(
                "{id} is complete, and {name} is {:?}",
                action.state
            ));
        }
        let Some(undo) = &action.undo else { continue };
        let is_undone = matches!(record.state, Status::Undone | Status::Cancelled);
        if is_undone && undo.state == UndoState::Done && effects > 0 {
            check_undone(
                world,
                record,
                name,
                action.mode.repeatable(),
                of(Phase::Do),
                of(Phase::Undo),
            );
        }
        if is_undone && effects > 0 && !matches!(undo.state, UndoState::Done | UndoState::Waived) {
            world
                .log
                .wrong(format_args!("{id} is undone, but not {name}"));
        }
    }
}

/// What completed an action is what one of its bodies gave, what its verify says, or what somebody has said of it.
fn check_output(world: &World, record: &MilestoneRecord, name: &str, output: &Bson) {
    let id = &record.id;
    let says = |who: &str| {
        let output = output.as_document();
        output.is_some_and(|output| output.contains_key(who))
    };
    let right = if says("verified") {
        record.report.iter().any(|attempt| {
            attempt.action == *name
                && attempt.phase == Phase::Verify
                && attempt.success == Some(true)
        })
    } else if says("resolved") {
        let mut answers = record.answers.iter();
        answers.any(|answer| answer.order == "resolve" && answer.done)
    } else {
        world.ledger.gave(id, name, output)
    };
    if !right {
        world
            .log
            .wrong(format_args!("{id}/{name} never gave {output}"));
    }
}

/// An undo ended well; and of what may run only once, nothing took effect after the undo began, unless the process was frozen meanwhile.
fn check_undone<'a>(
    world: &World,
    record: &MilestoneRecord,
    name: &str,
    repeatable: bool,
    done: impl Iterator<Item = &'a Run>,
    undone: impl Iterator<Item = &'a Run>,
) {
    let id = &record.id;
    let undone: Vec<&Run> = undone.collect();
    if !undone.iter().any(|run| run.end == Some(End::Ok)) {
        world.log.wrong(format_args!(
            "{id}/{name} is undone, and no undo ended well"
        ));
    }
    if repeatable {
        return;
    }
    let first = undone.iter().map(|run| run.begun).min();
    for run in done.filter(|run| !run.frozen) {
        if run
            .effect
            .zip(first)
            .is_some_and(|(effect, first)| effect > first)
        {
            world
                .log
                .wrong(format_args!("{id}/{name} took effect after its undo began"));
        }
    }
}
