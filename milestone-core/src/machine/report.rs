//! The report: every attempt, newest first, bounded in number and in bytes. What is dropped comes from the middle and is counted.

use super::{
    editor::Editor,
    encode::{Encode, encode_all},
};
use crate::{
    limits::Limits,
    record::{Attempt, AttemptError},
};

/// How many attempts of one action are kept before the middle ones are dropped.
const ACTION_ATTEMPTS: usize = 32;

/// How many attempts of all actions are kept before those in the middle that succeeded are dropped. A document is written as a whole by
/// some servers and copied by all, so a step of a long chain would cost more the more steps came before it.
const ATTEMPTS: usize = 64;

/// How many of the newest attempts of an action keep their backtrace when the report is made smaller.
const BACKTRACES: usize = 2;

/// How many of the oldest attempts of all stay when the report is made smaller.
const OLDEST: usize = 8;

/// How many causes of an error are kept.
const CAUSES: usize = 16;

/// The bytes of an error's type and of its location.
const SHORT: usize = 512;

impl Editor<'_> {
    /// Adds an attempt, and makes the report smaller where it has grown over a limit. That is done down to half of the limit, so that it
    /// is seldom done.
    pub(super) fn report(&mut self, mut attempt: Attempt) {
        if let Some(error) = &mut attempt.error {
            shorten(error, self.limits);
        }
        let action = attempt.action.clone();
        let encoded = attempt.encode();
        let report = &mut self.record.report;
        report.insert(0, attempt);
        let (mut count, mut bytes, mut all) = (0, 0, 0);
        for attempt in &*report {
            let size = size_of(attempt);
            all += size;
            if attempt.action == action {
                count += 1;
                bytes += size;
            }
        }
        let action_is_full = count > ACTION_ATTEMPTS || bytes > self.limits.action_report;
        let all_is_full = all > self.limits.report;
        // What failed stays, so it is the successes that are counted.
        let is_long = report.len() > ATTEMPTS && successes(report) > ATTEMPTS;
        if !action_is_full && !all_is_full && !is_long {
            self.patch.push_attempt(encoded);
            return;
        }
        let before = report.len();
        if action_is_full {
            drop_of_action(report, &action, self.limits.action_report);
        }
        if is_long {
            drop_successes(report);
        }
        if all_is_full {
            drop_of_all(report, self.limits.report);
        }
        let dropped = before - report.len();
        self.patch.replace_report(encode_all(report));
        if dropped > 0 {
            self.record.report_dropped += i64::try_from(dropped).unwrap_or(i64::MAX);
            self.patch.set("reportDropped", self.record.report_dropped);
        }
    }
}

/// Keeps the newest attempt of an action as it is, the first one as far as a quarter of the limit goes, and of those between the newest
/// up to half of it.
fn drop_of_action(report: &mut Vec<Attempt>, action: &str, limit: usize) {
    let count = report
        .iter()
        .filter(|attempt| attempt.action == action)
        .count();
    let (mut seen, mut bytes, mut newest) = (0, 0, 0);
    report.retain_mut(|attempt| {
        if attempt.action != action {
            return true;
        }
        seen += 1;
        if seen == 1 {
            newest = size_of(attempt);
            bytes = newest;
            return true;
        }
        if seen == count {
            shrink(attempt, limit.saturating_sub(newest).min(limit / 4));
            return true;
        }
        if seen > BACKTRACES
            && let Some(error) = &mut attempt.error
        {
            error.backtrace = None;
        }
        bytes += size_of(attempt);
        seen <= ACTION_ATTEMPTS / 2 && bytes <= limit / 2
    });
}

fn succeeded(attempt: &Attempt) -> bool {
    attempt.success == Some(true)
}

fn successes(report: &[Attempt]) -> usize {
    report.iter().filter(|attempt| succeeded(attempt)).count()
}

/// Keeps of the attempts that succeeded the newest, half as many as there may be, and the oldest few.
fn drop_successes(report: &mut Vec<Attempt>) {
    let count = successes(report);
    let mut seen = 0;
    report.retain(|attempt| {
        seen += usize::from(succeeded(attempt));
        !succeeded(attempt) || seen <= ATTEMPTS / 2 || seen + OLDEST > count
    });
}

/// Keeps the newest attempts of all up to half of the limit, and the oldest few as far as a quarter of it goes.
fn drop_of_all(report: &mut Vec<Attempt>, limit: usize) {
    let count = report.len();
    let (mut seen, mut bytes) = (0, 0);
    report.retain_mut(|attempt| {
        seen += 1;
        if seen > 1 && seen + OLDEST > count {
            shrink(attempt, limit / 4 / OLDEST);
            return true;
        }
        bytes += size_of(attempt);
        seen == 1 || bytes <= limit / 2
    });
}

/// Makes an attempt smaller until it fits: the backtrace is cut, then the causes go, then the message is cut.
fn shrink(attempt: &mut Attempt, room: usize) {
    let over = |attempt: &Attempt| match size_of(attempt).saturating_sub(room) {
        0 => None,
        bytes => Some(bytes + CUT_NOTE),
    };
    if let Some(over) = over(attempt)
        && let Some(error) = &mut attempt.error
        && let Some(mut text) = error.backtrace.take()
        && text.len() > over + SHORT
    {
        // The first frames are those nearest to the error.
        let left = text.len() - over;
        cut(&mut text, left);
        error.backtrace = Some(text);
    }
    if over(attempt).is_some()
        && let Some(error) = &mut attempt.error
    {
        error.chain.clear();
    }
    if let Some(over) = over(attempt)
        && let Some(error) = &mut attempt.error
    {
        let left = error.message.len().saturating_sub(over);
        cut(&mut error.message, left);
    }
}

/// The bytes that the note of [`cut`] takes at the most.
const CUT_NOTE: usize = 40;

fn shorten(error: &mut AttemptError, limits: &Limits) {
    cut(&mut error.kind, SHORT);
    cut(&mut error.message, limits.message);
    // All causes together take no more than a message may.
    error.chain.truncate(CAUSES);
    let mut left = limits.message;
    for cause in &mut error.chain {
        cut(cause, left.min(limits.message / 4));
        left = left.saturating_sub(cause.len());
    }
    if let Some(text) = &mut error.backtrace {
        cut(text, limits.backtrace);
    }
    if let Some(text) = &mut error.location {
        cut(text, SHORT);
    }
}

/// A text of a limited size.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    let mut text = text.to_owned();
    cut(&mut text, limit);
    text
}

/// Cuts at a character's boundary, and says how much is missing.
fn cut(text: &mut String, limit: usize) {
    if text.len() <= limit {
        return;
    }
    let end = text.floor_char_boundary(limit);
    let missing = text.len() - end;
    *text = format!("{} [{missing} bytes cut]", &text[..end]);
}

/// About how many bytes it takes in the document; at least as many.
fn size_of(attempt: &Attempt) -> usize {
    let error = attempt.error.as_ref().map_or(0, |error| {
        64 + error.kind.len()
            + error.message.len()
            + error
                .chain
                .iter()
                .map(|cause| 12 + cause.len())
                .sum::<usize>()
            + error.backtrace.as_deref().map_or(0, |text| 20 + text.len())
            + error.location.as_deref().map_or(0, |text| 20 + text.len())
    });
    160 + attempt.action.len() + attempt.worker.len() + error
}
