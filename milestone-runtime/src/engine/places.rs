//! The places of a worker, and the bodies that fill them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bson::{Bson, DateTime};
use milestone_core::{
    graph::Input,
    limits::LimitError,
    machine::{Event, Failed, Task, due_tasks},
    patch::size_of_value,
    record::{AttemptError, AttemptKind, MilestoneId},
};
use tokio::{sync::watch, task::AbortHandle};

use super::{Engine, attempt_number, body, held::Held, message::Message, method_of};
use crate::action::{Call, CallInner, Context, ContextInner, Failure, Seen};

/// How long a body that was asked to stop may go on before it is dropped at its next await.
const STOP_GRACE: Duration = Duration::from_secs(5);

pub(super) struct Places {
    all: usize,
    taken: usize,
    by_method: HashMap<String, u32>,
    bodies: HashMap<u64, Body>,
    /// Bodies that were given up but have not ended: their actions do not begin here until they have.
    disowned: HashMap<MilestoneId, HashSet<Task>>,
    serial: u64,
}

struct Body {
    id: MilestoneId,
    task: Task,
    number: i64,
    method: String,
    abort: AbortHandle,
    cancel: watch::Sender<bool>,
    /// Whether its result still counts.
    owned: bool,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        Self {
            all,
            taken: 0,
            by_method: HashMap::new(),
            bodies: HashMap::new(),
            disowned: HashMap::new(),
            serial: 0,
        }
    }

    pub(super) fn free(&self) -> usize {
        self.all.saturating_sub(self.taken)
    }

    pub(super) fn reserve(&mut self, method: &str) {
        self.taken += 1;
        match self.by_method.get_mut(method) {
            Some(count) => *count += 1,
            None => {
                self.by_method.insert(method.to_owned(), 1);
            }
        }
    }

    pub(super) fn release(&mut self, method: &str) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(count) = self.by_method.get_mut(method) {
            *count -= 1;
            if *count == 0 {
                self.by_method.remove(method);
            }
        }
    }

    fn running(&self, method: &str) -> u32 {
        self.by_method.get(method).copied().unwrap_or(0)
    }

    pub(super) fn has_disowned(&self, id: &MilestoneId) -> bool {
        self.disowned.contains_key(id)
    }

    fn is_disowned(&self, id: &MilestoneId, task: Task) -> bool {
        self.disowned
            .get(id)
            .is_some_and(|tasks| tasks.contains(&task))
    }

    /// The result of a body no longer counts. It is asked to stop, and dropped at its next await.
    fn disown(&mut self, serial: u64) {
        if let Some(body) = self.bodies.get_mut(&serial)
            && body.owned
        {
            body.owned = false;
            body.cancel.send_replace(true);
            self.disowned
                .entry(body.id.clone())
                .or_default()
                .insert(body.task);
        }
    }

    pub(super) fn abort(&self, serial: u64) {
        if let Some(body) = self.bodies.get(&serial) {
            body.abort.abort();
        }
    }

    /// Sets the cancellation token of a body, and tells whether it was not set before.
    pub(super) fn ask_to_stop(&self, serial: u64) -> bool {
        self.bodies.get(&serial).is_some_and(|body| {
            body.cancel
                .send_if_modified(|cancelled| !std::mem::replace(cancelled, true))
        })
    }

    fn ended(&mut self, serial: u64) -> Option<Body> {
        let body = self.bodies.remove(&serial)?;
        self.release(&body.method);
        if !body.owned
            && let Some(tasks) = self.disowned.get_mut(&body.id)
        {
            tasks.remove(&body.task);
            if tasks.is_empty() {
                self.disowned.remove(&body.id);
            }
        }
        Some(body)
    }

    pub(super) fn all_serials(&self) -> Vec<u64> {
        self.bodies.keys().copied().collect()
    }
}

impl Engine {
    /// What of a milestone can begin now. If something could but for a place, the milestone is put in the queue for one.
    pub(super) fn choose(&mut self, id: &MilestoneId, now: DateTime) -> Vec<Task> {
        if self.stopping.is_some() || self.closed {
            return Vec::new();
        }
        let Some(held) = self.held.get_mut(id) else {
            return Vec::new();
        };
        if held.is_closing() || !held.replay.is_empty() {
            return Vec::new();
        }
        let mut chosen: Vec<Task> = Vec::new();
        let mut wants = false;
        let mut wake: Option<DateTime> = None;
        let mut of_method: HashMap<&str, u32> = HashMap::new();
        for due in due_tasks(&held.record) {
            if let Some(at) = due.at.filter(|at| *at > now) {
                wake = Some(wake.map_or(at, |earliest| earliest.min(at)));
                continue;
            }
            if self.places.is_disowned(id, due.task) {
                continue;
            }
            let Some(method) = self.shared.registry.get(due.method) else {
                continue;
            };
            if self.places.free() <= chosen.len() {
                wants = true;
                break;
            }
            let chosen_of_it = of_method.entry(due.method).or_default();
            if method
                .options
                .concurrency
                .is_some_and(|most| self.places.running(due.method) + *chosen_of_it >= most)
            {
                wants = true;
                continue;
            }
            *chosen_of_it += 1;
            chosen.push(due.task);
        }
        if wants && !held.queued {
            held.queued = true;
            self.queue.push_back(id.clone());
        }
        held.due_at = wake;
        chosen
    }

    /// Gives free places to those who wait for one, in their order.
    pub(super) fn fill_places(&mut self) {
        for _ in 0..self.queue.len() {
            if self.places.free() == 0 {
                return;
            }
            let Some(id) = self.queue.pop_front() else {
                return;
            };
            if let Some(held) = self.held.get_mut(&id) {
                held.queued = false;
                self.plan(&id);
            }
        }
    }

    /// Starts the bodies of attempts that are stored as begun; under a lease that may be over, it is renewed first.
    pub(super) fn start_bodies(&mut self, id: &MilestoneId, begins: Vec<(Task, i64)>) {
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
            self.places.release(&name);
            return;
        }
        let Some(method) = self.shared.registry.get(&name) else {
            // It was unregistered between its begin and now.
            self.places.release(&name);
            self.fail(id, task, number, unregistered(&name));
            return;
        };
        self.places.serial += 1;
        let serial = self.places.serial;
        let (cancel, cancelled) = watch::channel(false);
        let call = call_of(held, task, number, method.inputs, &self.shared, cancelled);
        held.bodies.insert(task, serial);
        let body = body::run(serial, method.function, call, self.tell.clone());
        let abort = self.shared.application.spawn(body).abort_handle();
        let id = id.clone();
        self.places.bodies.insert(
            serial,
            Body {
                id,
                task,
                number,
                method: name,
                abort,
                cancel,
                owned: true,
            },
        );
        if let Some(timeout) = method.options.timeout {
            self.later(timeout, Message::TimedOut { serial });
        }
    }

    pub(super) fn ended(&mut self, serial: u64, result: Result<Bson, Failure>) {
        let Some(body) = self.places.ended(serial) else {
            return;
        };
        let Some(held) = self.held.get_mut(&body.id) else {
            return;
        };
        if !body.owned {
            // A body that was given up has ended; its action may begin again.
            return self.plan(&body.id);
        }
        held.bodies.remove(&body.task);
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
        let options = self
            .shared
            .registry
            .get(&body.method)
            .map(|method| method.options);
        let timeout = options
            .and_then(|options| options.timeout)
            .unwrap_or_default();
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
        self.give_up(serial);
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
        let siblings = held
            .bodies
            .iter()
            .filter(|(task, _)| **task == Task::to_do(task.action))
            .map(|(_, serial)| *serial);
        let asked: Vec<u64> = siblings
            .filter(|serial| self.places.ask_to_stop(*serial))
            .collect();
        for serial in asked {
            self.later(self.shared.config.grace, Message::Overdue { serial });
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
        let method = self.shared.registry.get(&method_of(held, task));
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
    shared: &super::Shared,
    cancelled: watch::Receiver<bool>,
) -> Call {
    let record = &held.record;
    let before = record.ancestors(task.action);
    let undoing = task == Task::to_undo(task.action);
    // Only what is asked for is copied, so that a step costs the same however many came before it.
    let is_wanted = |method: &str| {
        inputs.is_none_or(|inputs| {
            inputs.iter().any(|input| {
                matches!(input, Input::Output { method: wanted } | Input::MaybeOutput { method: wanted } if *wanted == method)
            })
        })
    };
    let actions = record.actions.iter().enumerate();
    let outputs = actions.filter_map(|(index, action)| {
        let visible = before[index] || (undoing && index == task.action);
        let output = action.output.as_ref().filter(|_| visible)?;
        let method = action.method.clone().filter(|method| is_wanted(method))?;
        Some(Seen {
            action: action.name.clone(),
            method,
            output: output.clone(),
        })
    });
    let outputs = outputs.collect();
    let context = Context::new(ContextInner {
        id: record.id.clone(),
        kind: record.kind.clone(),
        action: record.actions[task.action].name.clone(),
        phase: task.phase,
        attempt: number,
        epoch: record.epoch,
        worker: shared.worker.clone(),
        cancelled,
    });
    Call::new(CallInner {
        parameters: Arc::clone(&held.parameters),
        outputs,
        states: Arc::clone(&shared.states),
        context,
    })
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
        retry_after: None,
    }
}

fn unregistered(method: &str) -> Failure {
    Failure {
        error: Box::new(AttemptError {
            kind: "Unregistered".to_owned(),
            message: format!("`{method}` was unregistered before its body could begin"),
            ..AttemptError::default()
        }),
        kind: None,
        ..Failure::default()
    }
}
