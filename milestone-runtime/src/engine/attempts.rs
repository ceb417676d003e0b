//! Attempts on the application's executor: how their bodies start, and how they end: by themselves, by a timeout, or cut off.

use std::{
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use bson::{Bson, DateTime};
use milestone_core::{
    graph::Input,
    limits::LimitError,
    machine::{Event, Failed, Task},
    options::Mode,
    patch::size_of_value,
    record::{AttemptError, AttemptKind, MilestoneId, MilestoneRecord, Phase},
    retry::RetryPolicy,
};
use tokio::sync::watch;

use super::{Engine, attempt_number, body, held::Held, message::Message, method_of, places::Body};
use crate::{
    action::{Call, CallInner, Context, ContextInner, Failure, Seen},
    config::LONGEST,
};

/// How long a body that was asked to stop may go on before it is dropped at its next await.
const STOP_GRACE: Duration = Duration::from_secs(5);

impl Engine {
    /// Starts the bodies of attempts that are stored as begun; under a lease that may be over, it is renewed first.
    pub(super) fn start_bodies(&mut self, id: &MilestoneId, begins: Vec<(Task, i64)>) {
        let over = !self.serving
            && self.passes.is_empty()
            && self.stopping.as_ref().is_none_or(|stopping| stopping.cut);
        if over {
            for (task, number) in begins {
                self.not_begun(
                    id,
                    task,
                    number,
                    "the worker shut down before the body could begin",
                );
            }
            return;
        }
        let live = self.is_live(id);
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        if !live {
            held.waiting.extend(begins);
            self.renew_at = tokio::time::Instant::now();
            return;
        }
        for (task, number) in begins {
            self.start_body(id, task, number);
        }
    }

    fn start_body(&mut self, id: &MilestoneId, task: Task, number: i64) {
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        let name = method_of(held, task);
        if attempt_number(held, task) != number {
            self.places.release(name);
            return;
        }
        let Some(method) = self.shared.registry.get(name) else {
            let message = format!("`{name}` was unregistered before its body could begin");
            return self.not_begun(id, task, number, &message);
        };
        self.places.serial += 1;
        let serial = self.places.serial;
        let action = &held.record.actions[task.action];
        let late =
            (task.phase == Phase::Do && !action.mode.repeatable()).then(|| action.name.clone());
        let (cancel, cancelled) = watch::channel(false);
        let call = call_of(held, task, number, method.inputs, &self.shared, cancelled);
        let over = Arc::clone(call.context().over());
        held.bodies.insert(task, serial);
        let start = Arc::new(body::Start::default());
        let guard = body::Guard::new(serial, self.tell.clone(), Arc::clone(&start));
        let body = body::run(guard, Arc::clone(&method.function), call);
        let abort = self.shared.application.spawn(body).abort_handle();
        let timeout = method.options.timeout.map(|timeout| timeout.min(LONGEST));
        let timer = timeout.map(|timeout| self.later(timeout, Message::TimedOut { serial }));
        let body = Body {
            id: id.clone(),
            task,
            number,
            method,
            abort,
            cancel,
            over,
            owned: true,
            start,
            late,
            timer,
        };
        self.places.bodies.insert(serial, Box::new(body));
    }

    /// An attempt that is stored as begun, but whose body never was: for sure it has no effect, so also a plain action may be tried again.
    pub(super) fn not_begun(&mut self, id: &MilestoneId, task: Task, number: i64, message: &str) {
        let Some(held) = self.held.get(id) else {
            return;
        };
        self.places.release(method_of(held, task));
        self.fail_not_begun(id, task, number, message);
    }

    fn fail_not_begun(&mut self, id: &MilestoneId, task: Task, number: i64, message: &str) {
        let repeatable = self.held.get(id).is_some_and(|held| {
            task.phase != Phase::Do || held.record.actions[task.action].mode.repeatable()
        });
        let error = AttemptError {
            kind: "NotBegun".to_owned(),
            message: message.to_owned(),
            ..AttemptError::default()
        };
        let failed = Failed {
            error,
            // It is no failure of the action. What may run twice is handed on at once; a plain one would be in doubt by that.
            kind: repeatable.then_some(AttemptKind::Cancelled),
            fatal: false,
            retry_after: None,
            policy: RetryPolicy::new(),
            jitter: fastrand::f64(),
            settle: Duration::ZERO,
        };
        self.step(
            id,
            Event::Failed {
                task,
                number,
                failed,
            },
        );
    }

    pub(super) fn ended(&mut self, serial: u64, result: Result<Bson, Failure>) {
        let Some(mut body) = self.places.ended(serial) else {
            return;
        };
        if !body.owned
            && let Some(action) = body.late.take()
            && let Ok(output) = &result
        {
            self.send_late(body.id.clone(), action, body.number, output.clone());
        }
        let Some(held) = self.held.get_mut(&body.id) else {
            return;
        };
        if !body.owned {
            // A body that was given up has ended; its action may begin again.
            return self.plan(&body.id);
        }
        held.bodies.remove(&body.task);
        if !body.start.has_begun() {
            // Nobody here has given it up, so its executor has.
            let message = "the executor that actions run on is gone";
            self.fail_not_begun(&body.id, body.task, body.number, message);
            return self.executor_is_gone();
        }
        let result = match result {
            // What an undo gives is not kept, so it need not be storable.
            Ok(_) if body.task.phase == Phase::Undo => Ok(Bson::Null),
            Err(failure)
                if body.task.phase == Phase::Undo && failure.kind == Some(AttemptKind::Refused) =>
            {
                Ok(Bson::Null)
            }
            result => result,
        };
        match result {
            Ok(output) => {
                let size = size_of_value(&output);
                let limit = self.shared.config.limits.document;
                if held.size + size > limit {
                    let name = held.record.actions[body.task.action].name.clone();
                    let failure = too_large(&name, held.size + size, limit);
                    return self.fail(&body.id, body.task, body.number, failure);
                }
                self.step(
                    &body.id,
                    Event::Succeeded {
                        task: body.task,
                        number: body.number,
                        output,
                    },
                );
            }
            Err(failure) => self.fail(&body.id, body.task, body.number, failure),
        }
    }

    pub(super) fn timed_out(&mut self, serial: u64) {
        let Some(body) = self.places.bodies.get(&serial) else {
            return;
        };
        let method = self.shared.registry.get(&body.method.name);
        let timeout = method
            .and_then(|method| method.options.timeout)
            .unwrap_or_default();
        if !body.start.has_begun() {
            // The executor has had no time for it: it has not taken long, it has not begun. It is looked at again.
            let timer = self.later(timeout.min(LONGEST), Message::TimedOut { serial });
            if let Some(body) = self.places.bodies.get_mut(&serial) {
                body.timer = Some(timer);
            }
            return;
        }
        let message = format!(
            "the attempt took longer than its timeout of {}",
            humantime::format_duration(timeout)
        );
        self.cut_off(serial, AttemptKind::Timeout, "Timeout", message);
        // A timeout is a promise: it ends at its next await, as with `tokio::time::timeout`.
        self.places.abort(serial);
    }

    /// Its milestone is being undone, and it has not ended within the grace period.
    pub(super) fn overdue(&mut self, serial: u64) {
        let message =
            "the milestone is being undone, and the attempt did not end within the grace period"
                .to_owned();
        self.cut_off(serial, AttemptKind::Cancelled, "Cancelled", message);
    }

    /// Ends an attempt whose body goes on.
    pub(super) fn cut_off(&mut self, serial: u64, kind: AttemptKind, name: &str, message: String) {
        let Some(body) = self.places.bodies.get(&serial).filter(|body| body.owned) else {
            return;
        };
        let (id, task, number) = (body.id.clone(), body.task, body.number);
        let revoked = body.start.revoke();
        self.give_up(serial);
        if revoked {
            return self.fail_not_begun(&id, task, number, &message);
        }
        let error = AttemptError {
            kind: name.to_owned(),
            message,
            ..AttemptError::default()
        };
        self.fail(
            &id,
            task,
            number,
            Failure {
                error: Box::new(error),
                kind: Some(kind),
                ..Failure::default()
            },
        );
    }

    /// Asks what still runs of a milestone that is being undone to stop: within the grace period, then it is cut off.
    pub(super) fn stop_siblings(&mut self, id: &MilestoneId) {
        let Some(held) = self.held.get(id) else {
            return;
        };
        // What is undone anyway need not be verified.
        let actions = &held.record.actions;
        let is_sibling = |task: &Task| match task.phase {
            Phase::Do => true,
            Phase::Verify => actions[task.action].undo.is_some(),
            _ => false,
        };
        let bodies = held.bodies.iter().filter(|(task, _)| is_sibling(task));
        let siblings = bodies.map(|(_, serial)| *serial);
        let asked: Vec<u64> = siblings
            .filter(|serial| self.places.ask_to_stop(*serial))
            .collect();
        for serial in asked {
            self.later(self.shared.config.grace, Message::Overdue { serial });
        }
    }

    /// Gives up the bodies whose attempts have ended in the document by another way, such as a verify that an operator's word came before.
    pub(super) fn give_up_told_off(&mut self, id: &MilestoneId) {
        let Some(held) = self.held.get(id) else {
            return;
        };
        let bodies = held.bodies.iter().filter(|(task, serial)| {
            let number = self.places.bodies.get(serial).map(|body| body.number);
            number.is_some_and(|number| attempt_number(held, **task) != number)
        });
        let told_off: Vec<u64> = bodies.map(|(_, serial)| *serial).collect();
        for serial in told_off {
            self.give_up(serial);
        }
    }

    /// Forgets a body: its result no longer counts.
    pub(super) fn give_up(&mut self, serial: u64) {
        self.places.disown(serial);
        if let Some(body) = self.places.bodies.get(&serial)
            && let Some(held) = self.held.get_mut(&body.id)
        {
            held.bodies.remove(&body.task);
        }
        self.later(STOP_GRACE, Message::Abort { serial });
    }

    pub(super) fn fail(&mut self, id: &MilestoneId, task: Task, number: i64, failure: Failure) {
        let Some(held) = self.held.get(id) else {
            return;
        };
        let method = self.shared.registry.get(method_of(held, task));
        let options = method.as_ref().map(|method| method.options);
        let timeout = options.and_then(|options| options.timeout);
        let mut error = *failure.error;
        if error.location.is_none() {
            // The error does not tell where it comes from; where its action stands is better than nothing.
            error.location = method.as_ref().map(|method| method.location.to_string());
        }
        let failed = Failed {
            error,
            kind: failure.kind,
            fatal: failure.fatal,
            retry_after: failure.retry_after,
            policy: options
                .map(|options| options.effective_retry())
                .unwrap_or_default(),
            jitter: fastrand::f64(),
            settle: self.shared.config.settle(timeout),
        };
        let action = &held.record.actions[task.action].name;
        tracing::info!(milestone = %id, action, number, error = %failed.error.message, "an attempt has failed");
        self.step(
            id,
            Event::Failed {
                task,
                number,
                failed,
            },
        );
    }
}

fn call_of(
    held: &Held,
    task: Task,
    number: i64,
    inputs: Option<&[Input]>,
    shared: &Arc<super::Shared>,
    cancelled: watch::Receiver<bool>,
) -> Call {
    let record = &held.record;
    let undoing = task == Task::to_undo(task.action);
    let undone = &record.actions[task.action];
    let unsettled = undone.method.clone().filter(|method| {
        undoing && undone.output.is_none() && is_transactional(undone.mode, method, shared)
    });
    let limit = shared.config.limits.document;
    let context = Context::new(ContextInner {
        id: record.id.clone(),
        created_at: record.created_at,
        kind: record.kind.clone(),
        action: record.actions[task.action].name.clone(),
        phase: task.phase,
        attempt: number,
        epoch: record.epoch,
        worker: shared.worker.clone(),
        cancelled,
        abandoned_by: abandoned_by(record, task, &shared.worker),
        hold: Arc::clone(&held.hold),
        in_transaction: AtomicBool::new(false),
        written: Mutex::default(),
        over: Arc::default(),
        shared: Arc::clone(shared),
    });
    Call::new(CallInner {
        parameters: Arc::clone(&held.parameters),
        outputs: outputs_for(record, task, inputs),
        unsettled,
        settled: OnceLock::new(),
        room: limit.saturating_sub(held.size),
        states: Arc::clone(&shared.states),
        context,
    })
}

/// The outputs that an attempt sees: of what runs before it, and for an undo that of its own action. Only what is asked for is copied, so
/// that a step costs the same however many came before it.
fn outputs_for(record: &MilestoneRecord, task: Task, inputs: Option<&[Input]>) -> Vec<Seen> {
    let is_output =
        |input: &Input| matches!(input, Input::Output { .. } | Input::MaybeOutput { .. });
    if inputs.is_some_and(|inputs| !inputs.iter().any(is_output)) {
        return Vec::new();
    }
    let is_wanted = |method: &str| {
        inputs.is_none_or(|inputs| {
            inputs.iter().any(|input| {
                matches!(input, Input::Output { method: wanted } | Input::MaybeOutput { method: wanted } if *wanted == method)
            })
        })
    };
    let mut visible = record.ancestors(task.action);
    visible[task.action] |= task.phase == Phase::Undo;
    let actions = record.actions.iter().zip(visible);
    let seen = actions
        .filter(|(_, is_visible)| *is_visible)
        .filter_map(|(action, _)| {
            let output = action.output.as_ref()?;
            let method = action
                .method
                .as_deref()
                .filter(|method| is_wanted(method))?;
            Some(Seen {
                action: action.name.clone(),
                method: method.to_owned(),
                output: output.clone(),
            })
        });
    seen.collect()
}

/// By what is stored, or by what is registered now: its options may have changed since.
fn is_transactional(stored: Mode, method: &str, shared: &super::Shared) -> bool {
    let registered = || {
        shared
            .registry
            .get(method)
            .map(|method| method.options.mode)
    };
    stored == Mode::Transactional || registered() == Some(Mode::Transactional)
}

/// The worker of the attempt before this one, if it is gone, or was when it was last heard of, and when the milestone was taken since.
fn abandoned_by(record: &MilestoneRecord, task: Task, worker: &str) -> Option<(String, DateTime)> {
    let action = &record.actions[task.action];
    if task.phase == Phase::Do && action.attempts < 2 {
        return None;
    }
    let name = &action.name;
    let before = record
        .report
        .iter()
        .find(|attempt| attempt.action == *name)?;
    let abandoned = before.kind == Some(AttemptKind::Abandoned) && before.worker != worker;
    let taken = record.lease.as_ref().map(|lease| lease.since);
    abandoned.then(|| (before.worker.clone(), taken.unwrap_or(DateTime::MAX)))
}

fn too_large(action: &str, size: usize, limit: usize) -> Failure {
    let limit = LimitError::Size {
        what: format!("the document with the output of `{action}`"),
        size,
        limit,
        limit_name: "document",
    };
    Failure {
        error: Box::new(AttemptError {
            kind: "LimitError".to_owned(),
            message: format!("the action took effect, but {limit}; it is not run again"),
            ..AttemptError::default()
        }),
        kind: Some(AttemptKind::Refused),
        fatal: true,
        ..Failure::default()
    }
}
