//! Why a milestone waits, and what an operator can do about it, in plain words.

mod workers;

use bson::DateTime;
use milestone_runtime::{
    MilestoneRecord, Status,
    core::{
        machine::DueTask,
        record::{
            ActionRecord, Attempt, AttemptKind, DEFAULT_QUEUE, Hold, Order, Phase, Running,
            UndoRecord, UndoState, VerifyRecord, VerifyState,
        },
        waits::Wait,
    },
    store::WorkerInfo,
};

use crate::{
    output::{counted, shortened},
    shell,
    text::visible,
    time,
};

use workers::with_workers;
pub(crate) use workers::{living, serving};

/// How much of an error is told in passing.
const ERROR: usize = 160;

/// What the explanation rests on besides the milestone.
pub(crate) struct Surroundings<'a> {
    /// The server's time.
    pub(crate) now: DateTime,
    /// The workers that live.
    pub(crate) workers: &'a [WorkerInfo],
    /// How a command line for the same place begins.
    pub(crate) program: &'a str,
}

/// One reason: a sentence, and what follows from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) what: String,
    pub(crate) then: Vec<String>,
}

impl Surroundings<'_> {
    /// A command line for the milestone, and for one of its actions.
    fn command(
        &self,
        command: &str,
        record: &MilestoneRecord,
        action: Option<&str>,
        options: &str,
    ) -> String {
        shell::command(self.program, command, &record.id, action, options)
    }
}

impl Reason {
    fn new(what: String) -> Self {
        Self {
            what,
            then: Vec::new(),
        }
    }

    fn then(mut self, line: impl Into<String>) -> Self {
        self.then.push(line.into());
        self
    }
}

/// Why it waits; of a milestone that is over, how it ended.
pub(crate) fn explain(record: &MilestoneRecord, around: &Surroundings<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if record.state.is_terminal() {
        reasons.push(end(record, around));
    } else if let Some(unwind) = &record.unwind {
        let by = unwind.by.as_deref().map(|by| format!(" by {by}"));
        let since = time::both(unwind.since, around.now);
        let (by, reason) = (by.unwrap_or_default(), &unwind.reason);
        reasons.push(Reason::new(format!(
            "it is being undone{by} since {since}, and ends {}: {reason}",
            unwind.to
        )));
    }
    let waits = record.waits(around.now);
    if waits.is_empty() && !record.state.is_terminal() {
        let what = "nothing is known that it waits for, which should not be".to_owned();
        reasons.push(Reason::new(what).then(format!("{} doctor", around.program)));
    }
    reasons.extend(waits.iter().map(|wait| reason(record, wait, around)));
    // What documents say must not reach the terminal as it is.
    for reason in &mut reasons {
        for line in [&mut reason.what].into_iter().chain(&mut reason.then) {
            *line = visible(line).into_owned();
        }
    }
    reasons
}

fn end(record: &MilestoneRecord, around: &Surroundings<'_>) -> Reason {
    let ended = record.end_date.map(|end| time::both(end, around.now));
    let what = format!("{} at {}", record.state, ended.unwrap_or_default());
    let because = record.unwind.as_ref().map(|unwind| {
        let by = unwind.by.as_deref().map(|by| format!("by {by}: "));
        format!("{}{}", by.unwrap_or_default(), unwind.reason)
    });
    let error = newest_error(record, None).map(|error| format!("the newest error: {error}"));
    match record.state {
        Status::Completed => Reason::new(what),
        Status::Failed => {
            let go_on = if because.is_some() {
                "to go on without a deadline"
            } else {
                "to go on from what failed"
            };
            let mut reason = Reason::new(what);
            reason.then.extend(because);
            reason.then.extend(error);
            let retry = around.command("retry", record, None, "");
            reason.then(format!("{go_on}: {retry}"))
        }
        _ => {
            let mut reason = Reason::new(what);
            reason.then.extend(because);
            reason.then.extend(error);
            reason
        }
    }
}

fn reason(record: &MilestoneRecord, wait: &Wait<'_>, around: &Surroundings<'_>) -> Reason {
    match wait {
        Wait::Mail { commands } => mail(record, *commands, around),
        Wait::Hold(hold) => held(record, hold, around),
        Wait::Running {
            action,
            phase,
            running,
        } => runs(record, action, *phase, running, around),
        Wait::Doubt { action } => doubt(record, action, around),
        Wait::Undo { action, undo } => undo_failed(record, action, undo, around),
        Wait::Time { action, due, at } => later(record, action, due, *at, around),
        Wait::Worker { action, due } => {
            let what = task(action, due.task.phase);
            let reason = Reason::new(format!("{what} is due, and waits for a worker"));
            let reason = with_waive(reason, record, due, around);
            with_workers(reason, record, due, around)
        }
        _ => Reason::new("for something that this version does not know".to_owned()),
    }
}

fn mail(record: &MilestoneRecord, commands: usize, around: &Surroundings<'_>) -> Reason {
    let count = counted(commands as u64, "command");
    let mut reason = Reason::new(format!(
        "{count} in the inbox, which no worker has read yet"
    ));
    for command in &record.inbox {
        let sent = time::relative(command.at, around.now);
        reason = reason.then(format!(
            "{} by {}, {sent}",
            command.order.name(),
            command.by
        ));
    }
    if around.workers.is_empty() {
        reason = reason.then("no worker lives");
    }
    reason
}

fn held(record: &MilestoneRecord, hold: &Hold, around: &Surroundings<'_>) -> Reason {
    let since = time::both(hold.since, around.now);
    let reason = Reason::new(format!(
        "on hold since {since}, by {}: {}",
        hold.by, hold.reason
    ))
    .then(format!(
        "nothing new begins until: {}",
        around.command("resume", record, None, "")
    ));
    // What is being undone is not ended by it.
    let Some(deadline) = record.deadline.filter(|_| record.unwind.is_none()) else {
        return reason;
    };
    let is_undoable = record.actions.iter().any(|action| action.undo.is_some());
    let end = if is_undoable {
        "what was done is undone"
    } else {
        "it fails"
    };
    let at = time::both(deadline, around.now);
    reason.then(if deadline <= around.now {
        format!("its deadline, {at}, has passed: once it is resumed, it ends at once, and {end}")
    } else {
        format!("from its deadline on, {at}, a `resume` ends it at once, and {end}")
    })
}

/// How what has failed for good is tried again, if the state accepts that; else when it will.
fn retry(record: &MilestoneRecord, what: &str, around: &Surroundings<'_>) -> String {
    let line = around.command("retry", record, None, "");
    if Order::Retry.accepted_in().contains(&record.state) {
        format!("{what}: {line}")
    } else {
        format!("{what}, once nothing else of it runs or waits to run: {line}")
    }
}

fn runs(
    record: &MilestoneRecord,
    action: &ActionRecord,
    phase: Phase,
    running: &Running,
    around: &Surroundings<'_>,
) -> Reason {
    let what = task(action, phase);
    let (number, worker) = (running.number, &running.worker);
    let since = time::both(running.begin_date, around.now);
    let reason = Reason::new(format!(
        "{what} runs: attempt {number}, on {worker} since {since}"
    ));
    match &record.lease {
        Some(lease) if lease.until <= around.now => reason.then(format!(
            "its worker has been silent: the lease ended {}, and another worker takes over",
            time::relative(lease.until, around.now)
        )),
        _ => reason,
    }
}

fn doubt(record: &MilestoneRecord, action: &ActionRecord, around: &Surroundings<'_>) -> Reason {
    let name = &action.name;
    let last = record.report.iter().find(|attempt| {
        attempt.action == *name && attempt.phase == Phase::Do && attempt.number == action.attempts
    });
    let cut_off = last
        .and_then(|attempt| attempt.kind)
        .map_or("was cut off", |kind| match kind {
            AttemptKind::Abandoned => "was cut off when its worker died or lost its lease",
            AttemptKind::Timeout => "took longer than its timeout",
            AttemptKind::Panic => "panicked",
            AttemptKind::Unclear => "ended with an error that leaves it open",
            AttemptKind::Cancelled => "was cut off by a shutdown",
            AttemptKind::Refused => "gave an output that could not be stored",
            _ => "was cut off",
        });
    let attempt = action.attempts;
    let mut reason = Reason::new(format!(
        "`{name}` is in doubt: attempt {attempt} {cut_off}, so nobody knows whether it took effect"
    ));
    if let Some(last) = last {
        let began = time::both(last.begin_date, around.now);
        reason = reason.then(format!("it began on {} at {began}", last.worker));
    }
    let resolve = |options| around.command("resolve", record, Some(name), options);
    reason = reason
        .then("find out where it takes effect, then say so:")
        .then(format!(
            "  it did:      {}",
            resolve("--applied --output '<what it gave, as JSON>'")
        ))
        .then(format!("  it did not:  {}", resolve("--not-applied")));
    if let Some(settled) = action.settle_after {
        reason = reason.then(if settled > around.now {
            format!(
                "`--not-applied` is safe from {} on: until then the old attempt may still take effect",
                time::both(settled, around.now)
            )
        } else {
            format!(
                "`--not-applied` is safe: since {} the old attempt can no longer take effect",
                time::both(settled, around.now)
            )
        });
    }
    if let Some(verify) = verify(record, action) {
        let method = &verify.method;
        reason = reason.then(match verify.state {
            VerifyState::Failed => {
                let retry = retry(record, "to ask it again", around);
                format!("`{method}`, which should have told, has failed for good; {retry}")
            }
            VerifyState::Running => format!("it need not be said: `{method}` looks now"),
            _ => format!("it need not be said: `{method}` looks, see below"),
        });
    }
    match (&record.unwind, &action.undo) {
        (Some(_), Some(undo)) => {
            let undo = &undo.method;
            let running = action.verify.as_ref();
            let running = running.filter(|verify| verify.state == VerifyState::Running);
            reason.then(match running {
                Some(VerifyRecord { method, .. }) => format!(
                    "it need not be said: `{undo}` undoes it in either case, once `{method}`, which looks now, has ended"
                ),
                None => format!("it need not be said: `{undo}` undoes it in either case"),
            })
        }
        (Some(_), None) => reason.then("what comes before it is not undone until it is said"),
        (None, _) => reason,
    }
}

/// Who looks whether the action took effect, if it is asked at all: what is undone in either case is not looked into.
fn verify<'r>(record: &MilestoneRecord, action: &'r ActionRecord) -> Option<&'r VerifyRecord> {
    let is_asked = record.unwind.is_none() || action.undo.is_none();
    action.verify.as_ref().filter(|_| is_asked)
}

fn undo_failed(
    record: &MilestoneRecord,
    action: &ActionRecord,
    undo: &UndoRecord,
    around: &Surroundings<'_>,
) -> Reason {
    let name = &action.name;
    let mut reason = Reason::new(format!(
        "`{}`, the undo of `{name}`, has failed for good after {}",
        undo.method,
        counted(undo.attempts.unsigned_abs(), "attempt")
    ));
    if let Some(error) = newest_error(record, Some((name, Phase::Undo))) {
        reason = reason.then(error);
    }
    reason
        .then(format!(
            "to try it again:            {}",
            around.command("retry", record, None, "")
        ))
        .then(format!(
            "if it need not be undone:   {}",
            around.command("waive", record, Some(name), "")
        ))
}

/// Whether the action may be waived: its undo has begun, has not succeeded and does not run.
fn can_be_waived(action: &ActionRecord) -> bool {
    action.undo.as_ref().is_some_and(|undo| {
        undo.attempts > 0 && matches!(undo.state, UndoState::None | UndoState::Failed)
    })
}

fn later(
    record: &MilestoneRecord,
    action: &ActionRecord,
    due: &DueTask<'_>,
    at: DateTime,
    around: &Surroundings<'_>,
) -> Reason {
    let (phase, at) = (due.task.phase, time::both(at, around.now));
    let what = task(action, phase);
    let failures = action.tries(phase).map_or(0, |tries| tries.failures);
    let mut reason = if failures > 0 {
        let times = if failures == 1 {
            "once".to_owned()
        } else {
            format!("{failures} times in a row")
        };
        Reason::new(format!(
            "{what} is tried again at {at}: it has failed {times}"
        ))
    } else {
        Reason::new(format!("{what} may begin at {at}"))
    };
    if failures > 0
        && let Some(error) = newest_error(record, Some((&action.name, phase)))
    {
        reason = reason.then(error);
    }
    reason = with_waive(reason, record, due, around);
    let reachable = serving(due, around.workers) > 0;
    if reachable {
        reason
    } else {
        with_workers(reason, record, due, around)
    }
}

/// How somebody ends the trying of an undo.
fn with_waive(
    reason: Reason,
    record: &MilestoneRecord,
    due: &DueTask<'_>,
    around: &Surroundings<'_>,
) -> Reason {
    let action = &record.actions[due.task.action];
    if due.task.phase == Phase::Undo && can_be_waived(action) {
        let line = around.command("waive", record, Some(&action.name), "");
        reason.then(format!("if it need not be undone: {line}"))
    } else {
        reason
    }
}

/// The name of what runs or waits.
fn task(action: &ActionRecord, phase: Phase) -> String {
    let name = &action.name;
    let queue = action
        .queue
        .as_deref()
        .filter(|queue| *queue != DEFAULT_QUEUE);
    let queue = queue
        .map(|queue| format!(" (queue `{queue}`)"))
        .unwrap_or_default();
    match (phase, &action.method, &action.undo) {
        (Phase::Undo, _, Some(undo)) => format!("`{}`, the undo of `{name}`,{queue}", undo.method),
        (Phase::Verify, ..) => {
            let verify = action.verify.as_ref();
            let method = verify.map_or("a verify", |verify| verify.method.as_str());
            format!("`{method}`, which looks whether `{name}` took effect,{queue}")
        }
        (Phase::Do, Some(method), _) if method != name => {
            format!("`{name}` (method `{method}`){queue}")
        }
        (Phase::Do, _, _) | (Phase::Undo, _, None) => format!("`{name}`{queue}"),
        (phase, _, _) => format!("the {} of `{name}`{queue}", phase_name(phase)),
    }
}

/// The name of a phase, as it is stored.
pub(crate) fn phase_name(phase: Phase) -> String {
    format!("{phase:?}").to_lowercase()
}

/// The newest error, of all or of one action, in short.
pub(crate) fn newest_error(record: &MilestoneRecord, of: Option<(&str, Phase)>) -> Option<String> {
    let attempt = record.report.iter().find(|attempt| {
        attempt.success != Some(true)
            && of.is_none_or(|(name, phase)| attempt.action == name && attempt.phase == phase)
    })?;
    let text = in_short(attempt);
    Some(match of {
        Some(_) => shortened(&text, ERROR),
        None => shortened(&format!("{}: {text}", attempt.action), ERROR),
    })
}

/// Why it is where it is, in short: the reason of a deadline or a cancel where no attempt tells it, else the newest error.
pub(crate) fn in_a_word(record: &MilestoneRecord) -> Option<String> {
    let because = record.unwind.as_ref();
    let because = because.map(|unwind| shortened(&unwind.reason, ERROR));
    match record.state {
        Status::Completed => None,
        // An error of an attempt is not why.
        Status::Failed => because.or_else(|| newest_error(record, None)),
        _ => newest_error(record, None).or(because),
    }
}

/// What an attempt ended with, in short.
pub(crate) fn in_short(attempt: &Attempt) -> String {
    let how = attempt.kind.map(|kind| match kind {
        AttemptKind::Abandoned => "its worker died or lost its lease",
        AttemptKind::Timeout => "timeout",
        AttemptKind::Panic => "panic",
        AttemptKind::Unclear => "unclear",
        AttemptKind::Cancelled => "cancelled",
        AttemptKind::Refused => "its output was refused",
        _ => "ended otherwise",
    });
    match (how, &attempt.error) {
        (Some(how), None) => how.to_owned(),
        // A timeout's error says that it is one.
        (Some("timeout") | None, Some(error)) => error.message.clone(),
        (Some(how), Some(error)) => format!("{how}: {}", error.message),
        (None, None) => "no error is known".to_owned(),
    }
}

#[cfg(test)]
#[path = "explain/tests.rs"]
mod tests;
