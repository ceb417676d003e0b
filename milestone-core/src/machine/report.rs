//! The report: every attempt, newest first, bounded in number and in bytes. What is dropped comes from the middle and is counted.

use super::editor::{Editor, encode, encode_all};
use crate::record::{Attempt, AttemptError};

/// How many attempts of one action are kept before the middle ones are dropped.
const ACTION_ATTEMPTS: usize = 32;

/// How many of the newest attempts of an action keep their backtrace when the report is made smaller; the first one does too.
const BACKTRACES: usize = 2;

/// How many of the oldest attempts of all stay when the report is made smaller.
const OLDEST: usize = 8;

impl Editor<'_> {
    /// Adds an attempt, and makes the report smaller where it has grown over a limit. That is done down to half of the limit, so that it
    /// is seldom done.
    pub(super) fn report(&mut self, mut attempt: Attempt) {
        if let Some(error) = &mut attempt.error {
            shorten(error, self.limits.message, self.limits.backtrace);
        }
        let of_action = |other: &&Attempt| other.action == attempt.action;
        let count = self.record.report.iter().filter(of_action).count() + 1;
        let bytes = self
            .record
            .report
            .iter()
            .filter(of_action)
            .map(size_of)
            .sum::<usize>()
            + size_of(&attempt);
        let all = self.record.report.iter().map(size_of).sum::<usize>() + size_of(&attempt);
        let action = attempt.action.clone();
        let encoded = encode(&attempt);
        self.record.report.insert(0, attempt);
        let before = self.record.report.len();
        let full = count > ACTION_ATTEMPTS || bytes > self.limits.action_report;
        if full {
            drop_of_action(
                &mut self.record.report,
                &action,
                self.limits.action_report / 2,
            );
        }
        if all > self.limits.report {
            drop_of_all(&mut self.record.report, self.limits.report / 2);
        }
        if !full && all <= self.limits.report {
            self.patch.push_attempt(encoded);
            return;
        }
        let dropped = before - self.record.report.len();
        if dropped > 0 {
            self.record.report_dropped += i64::try_from(dropped).unwrap_or(i64::MAX);
            self.patch.set("reportDropped", self.record.report_dropped);
        }
        self.patch.replace_report(encode_all(&self.record.report));
    }
}

fn drop_of_action(report: &mut Vec<Attempt>, action: &str, limit: usize) {
    let count = report
        .iter()
        .filter(|attempt| attempt.action == action)
        .count();
    let (mut seen, mut bytes) = (0, 0);
    report.retain_mut(|attempt| {
        if attempt.action != action {
            return true;
        }
        seen += 1;
        let first = seen == count;
        if !first
            && seen > BACKTRACES
            && let Some(error) = &mut attempt.error
        {
            error.backtrace = None;
        }
        bytes += size_of(attempt);
        first || seen == 1 || (seen <= ACTION_ATTEMPTS / 2 && bytes <= limit)
    });
}

fn drop_of_all(report: &mut Vec<Attempt>, limit: usize) {
    let count = report.len();
    let (mut seen, mut bytes) = (0, 0);
    report.retain(|attempt| {
        seen += 1;
        bytes += size_of(attempt);
        seen == 1 || bytes <= limit || seen + OLDEST > count
    });
}

fn shorten(error: &mut AttemptError, message: usize, backtrace: usize) {
    cut(&mut error.kind, 512);
    cut(&mut error.message, message);
    error.chain.truncate(16);
    for cause in &mut error.chain {
        cut(cause, message / 4);
    }
    if let Some(text) = &mut error.backtrace {
        cut(text, backtrace);
    }
    if let Some(text) = &mut error.location {
        cut(text, 512);
    }
}

/// Cuts at a character's boundary, and says how much is missing.
fn cut(text: &mut String, limit: usize) {
    if text.len() <= limit {
        return;
    }
    let missing = text.len() - text.floor_char_boundary(limit);
    text.truncate(text.floor_char_boundary(limit));
    text.push_str(&format!(" [{missing} bytes cut]"));
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
