//! What must be true of a milestone that has ended, whatever has been broken meanwhile: its document agrees with itself, and with what
//! the bodies of its actions did.

use std::collections::{HashMap, HashSet};

use bson::Bson;
use milestone_runtime::core::{
    machine,
    options::Mode,
    record::{ActionKind, ActionRecord, ActionState, MilestoneRecord, Phase, UndoState},
};

use crate::journal::{Entry, What};

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A document does not agree with itself.
    Invariant,
    /// A completed action ran again, or its output changed.
    CompletedTwice,
    /// A plain action ran again, though nobody had said that it may.
    PlainTwice,
    /// Something ran before what it waits for, or was undone in the wrong order.
    Order,
    /// The document tells of something that did not happen, or does not tell of what did.
    Untrue,
}

/// What is wrong with one milestone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The milestone.
    pub id: String,
    /// What was promised.
    pub broken: Broken,
    /// What was found.
    pub what: String,
}

/// Everything that is wrong with a milestone. `entries` are its own ones of the journal, in order; `allowed` says how often each plain
/// action may have begun: once, and once more for each time that somebody has said that it was not applied.
pub fn judge(
    record: &MilestoneRecord,
    entries: &[Entry],
    allowed: impl Fn(&str) -> usize,
) -> Vec<Problem> {
    let mut found: Vec<(Broken, String)> = machine::check(record)
        .into_iter()
        .map(|violation| (Broken::Invariant, violation.what))
        .collect();
    for action in &record.actions {
        if action.kind != ActionKind::Action {
            continue;
        }
        let runs = Runs::of(action, entries);
        runs.check_attempts(action, &mut found);
        if action.state == ActionState::Completed {
            runs.check_completed(record, action, &mut found);
        }
        let begun = runs.begun(Phase::Do).count();
        if action.mode == Mode::Plain && begun > allowed(&action.name) {
            found.push((
                Broken::PlainTwice,
                format!("`{}` is plain and began {begun} times", action.name),
            ));
        }
    }
    check_order(record, entries, &mut found);
    check_undone(record, entries, &mut found);
    let id = record.id.to_string();
    found
        .into_iter()
        .map(|(broken, what)| Problem {
            id: id.clone(),
            broken,
            what,
        })
        .collect()
}

/// The entries of a journal by milestone.
pub fn by_milestone(entries: Vec<Entry>) -> HashMap<String, Vec<Entry>> {
    let mut sorted: HashMap<String, Vec<Entry>> = HashMap::new();
    for entry in entries {
        sorted
            .entry(entry.milestone.clone())
            .or_default()
            .push(entry);
    }
    sorted
}

/// What the body of one action did.
struct Runs<'e>(Vec<&'e Entry>);

impl<'e> Runs<'e> {
    fn of(action: &ActionRecord, entries: &'e [Entry]) -> Self {
        let own = entries.iter().filter(|entry| entry.action == action.name);
        Self(own.collect())
    }

    fn begun(&self, phase: Phase) -> impl Iterator<Item = &'e Entry> {
        let own = self.0.iter().copied();
        own.filter(move |entry| entry.what == What::Begun && entry.phase == phase)
    }

    /// Each attempt begins once, and none that is not stored as begun.
    fn check_attempts(&self, action: &ActionRecord, found: &mut Vec<(Broken, String)>) {
        let undo = action.undo.as_ref().map_or(0, |undo| undo.attempts);
        for (phase, stored) in [(Phase::Do, action.attempts), (Phase::Undo, undo)] {
            let mut seen = HashSet::new();
            for entry in self.begun(phase) {
                let number = entry.attempt;
                if !seen.insert(number) {
                    found.push((
                        Broken::Untrue,
                        format!(
                            "attempt {number} of `{}` ({phase:?}) began twice",
                            action.name
                        ),
                    ));
                }
                if number > stored {
                    found.push((
                        Broken::Untrue,
                        format!(
                            "attempt {number} of `{}` ({phase:?}) began, {stored} are stored",
                            action.name
                        ),
                    ));
                }
            }
        }
    }

    /// What completed it was the last attempt that ever began, and what is stored is what that one gave.
    fn check_completed(
        &self,
        record: &MilestoneRecord,
        action: &ActionRecord,
        found: &mut Vec<(Broken, String)>,
    ) {
        let name = &action.name;
        let completing: Vec<i64> = record
            .report
            .iter()
            .filter(|attempt| attempt.action == *name && attempt.phase == Phase::Do)
            .filter(|attempt| attempt.success == Some(true))
            .map(|attempt| attempt.number)
            .collect();
        if completing.len() > 1 {
            found.push((
                Broken::CompletedTwice,
                format!("`{name}` was completed by the attempts {completing:?}"),
            ));
        }
        // Where somebody has said that it took effect, no attempt is known to have succeeded.
        let Some(&number) = completing.first() else {
            return;
        };
        let last = self.begun(Phase::Do).map(|entry| entry.attempt).max();
        if last.is_some_and(|last| last > number) {
            found.push((
                Broken::CompletedTwice,
                format!("`{name}` was completed by attempt {number}, and {last:?} began after it"),
            ));
        }
        let gave = self.0.iter().find(|entry| {
            entry.what == What::Ended && entry.phase == Phase::Do && entry.attempt == number
        });
        match (gave, &action.output) {
            (Some(entry), Some(Bson::String(output))) if entry.mark == *output => {}
            (Some(_), Some(output)) if !matches!(output, Bson::String(_)) => {}
            (gave, output) => found.push((
                Broken::CompletedTwice,
                format!("attempt {number} of `{name}` gave {gave:?}, and {output:?} is stored"),
            )),
        }
    }
}

/// The attempt that did an action, or undid it. Where somebody has said that it took effect, none is known.
fn completing(record: &MilestoneRecord, name: &str, phase: Phase) -> Option<i64> {
    let mut attempts = record.report.iter();
    let of = |attempt: &&milestone_runtime::core::record::Attempt| {
        attempt.action == name && attempt.phase == phase && attempt.success == Some(true)
    };
    attempts.find(of).map(|attempt| attempt.number)
}

/// Where the attempt ended that did an action, or undid it. Of an attempt that lost its lease entries may come at any time.
fn end_of(record: &MilestoneRecord, entries: &[Entry], name: &str, phase: Phase) -> Option<usize> {
    let number = completing(record, name, phase)?;
    entries.iter().position(|entry| {
        entry.action == name
            && entry.phase == phase
            && entry.attempt == number
            && entry.what == What::Ended
    })
}

fn begin_of(entries: &[Entry], name: &str, phase: Phase) -> Option<usize> {
    entries
        .iter()
        .position(|entry| entry.action == name && entry.phase == phase && entry.what == What::Begun)
}

/// Nothing begins before all that it waits for has ended.
fn check_order(record: &MilestoneRecord, entries: &[Entry], found: &mut Vec<(Broken, String)>) {
    for (index, action) in record.actions.iter().enumerate() {
        let Some(begun) = begin_of(entries, &action.name, Phase::Do) else {
            continue;
        };
        for (before, waits) in record.actions.iter().zip(record.ancestors(index)) {
            let ended = end_of(record, entries, &before.name, Phase::Do);
            if waits && ended.is_some_and(|ended| ended > begun) {
                found.push((
                    Broken::Order,
                    format!("`{}` began before `{}` had ended", action.name, before.name),
                ));
            }
        }
    }
}

/// Undos run after everything that came after their actions is undone, and only where the document says that they did.
fn check_undone(record: &MilestoneRecord, entries: &[Entry], found: &mut Vec<(Broken, String)>) {
    for (index, action) in record.actions.iter().enumerate() {
        let name = &action.name;
        let ran = entries.iter().any(|entry| {
            entry.action == *name && entry.phase == Phase::Undo && entry.what == What::Ended
        });
        let done = action
            .undo
            .as_ref()
            .is_some_and(|undo| undo.state == UndoState::Done);
        if done != ran && record.state.is_terminal() {
            found.push((
                Broken::Untrue,
                format!("the undo of `{name}` is done: {done}, it ran to its end: {ran}"),
            ));
        }
        let Some(undone) = end_of(record, entries, name, Phase::Undo) else {
            continue;
        };
        for (before, waits) in record.actions.iter().zip(record.ancestors(index)) {
            let begun = begin_of(entries, &before.name, Phase::Undo);
            if waits && begun.is_some_and(|begun| begun < undone) {
                found.push((
                    Broken::Order,
                    format!("`{}` was undone before `{name}` was", before.name),
                ));
            }
        }
    }
}
