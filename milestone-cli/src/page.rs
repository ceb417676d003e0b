//! The page of one milestone, as `show` prints it.

use std::fmt::Write as _;

use bson::Bson;
use milestone_runtime::{
    MilestoneRecord,
    core::{
        record::{Attempt, AttemptKind, Phase},
        waits::Wait,
    },
};

use crate::{
    explain::{Surroundings, explain, in_short, phase_name},
    graph::terminal::drawing,
    ids, json,
    output::{counted, shortened},
    style::{BAD, BOLD, DIM, GOOD, WARN, of_status},
    text::{visible, visible_lines},
    time,
};

/// How many attempts and answers are told unless all are wanted.
const ATTEMPTS: usize = 10;
const ANSWERS: usize = 5;

/// How many lines of a stack are told, and how much of each, unless all are wanted.
const STACK: usize = 4;
const FRAME: usize = 110;

/// How much of a value is told unless all of it is wanted.
const VALUE: usize = 200;

/// All that there is to tell of a milestone.
pub(crate) fn page(record: &MilestoneRecord, around: &Surroundings<'_>, full: bool) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut text, record, around, full);
    text
}

fn write_page(
    text: &mut String,
    record: &MilestoneRecord,
    around: &Surroundings<'_>,
    full: bool,
) -> std::fmt::Result {
    head(text, record, around)?;
    let runs = |wait: &Wait<'_>| matches!(wait, Wait::Running { .. });
    let title = if record.state.is_terminal() {
        "How it ended"
    } else if record.waits(around.now).iter().any(runs) {
        "What it does"
    } else {
        "Why it waits"
    };
    heading(text, title)?;
    for reason in explain(record, around) {
        writeln!(text, "  {}", reason.what)?;
        for line in reason.then {
            writeln!(text, "    {line}")?;
        }
    }
    heading(text, "Graph")?;
    for line in drawing(record, around.now, full).lines() {
        writeln!(text, "  {line}")?;
    }
    attempts(text, record, around, full)?;
    mail(text, record, around, full)?;
    values(text, record, full)
}

fn heading(text: &mut String, title: &str) -> std::fmt::Result {
    writeln!(text, "\n{BOLD}{title}{BOLD:#}")
}

fn head(
    text: &mut String,
    record: &MilestoneRecord,
    around: &Surroundings<'_>,
) -> std::fmt::Result {
    let style = of_status(record.state);
    let state = record.state;
    write!(
        text,
        "{BOLD}{}{BOLD:#}  {}",
        ids::written(&record.id),
        visible(&record.kind)
    )?;
    write!(text, "  {style}{state}{style:#}")?;
    if record.hold.is_some() {
        write!(text, " {WARN}(on hold){WARN:#}")?;
    }
    writeln!(text)?;
    let mut line =
        |name: &str, value: &str| writeln!(text, "  {DIM}{name:<9}{DIM:#} {}", visible(value));
    line("started", &time::both(record.created_at, around.now))?;
    if let Some(begin) = record.begin_date {
        line("began", &time::both(begin, around.now))?;
    }
    if let Some(end) = record.end_date {
        line("ended", &time::both(end, around.now))?;
    }
    if let Some(deadline) = record.deadline {
        line("deadline", &time::both(deadline, around.now))?;
    }
    if let Some(lease) = &record.lease {
        let (owner, until) = (&lease.owner, time::both(lease.until, around.now));
        line("held by", &format!("{owner} until {until}"))?;
    }
    if record.losses > 0 {
        let losses = counted(record.losses.unsigned_abs(), "worker");
        let what = format!("{losses} in a row died or lost the lease while attempts ran");
        line("losses", &what)?;
    }
    if record.priority != 0 {
        line("priority", &record.priority.to_string())?;
    }
    if !record.labels.is_empty() {
        let labels = record
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        line("labels", &labels.collect::<Vec<_>>().join(", "))?;
    }
    if let Some(expire) = record.expire_at {
        line("expires", &time::both(expire, around.now))?;
    }
    Ok(())
}

fn attempts(
    text: &mut String,
    record: &MilestoneRecord,
    around: &Surroundings<'_>,
    full: bool,
) -> std::fmt::Result {
    if record.report.is_empty() {
        return Ok(());
    }
    heading(text, "Attempts, the newest first")?;
    let shown = if full { record.report.len() } else { ATTEMPTS };
    for attempt in record.report.iter().take(shown) {
        one_attempt(text, attempt, around, full)?;
    }
    let more = record.report.len().saturating_sub(shown);
    if more > 0 {
        writeln!(
            text,
            "  {DIM}… {}; --full tells all{DIM:#}",
            counted(more as u64, "more attempt")
        )?;
    }
    if record.report_dropped > 0 {
        let dropped = counted(record.report_dropped.unsigned_abs(), "attempt");
        writeln!(
            text,
            "  {DIM}{dropped} of the middle are no longer kept{DIM:#}"
        )?;
    }
    Ok(())
}

fn one_attempt(
    text: &mut String,
    attempt: &Attempt,
    around: &Surroundings<'_>,
    full: bool,
) -> std::fmt::Result {
    let (style, end) = match (attempt.success, attempt.kind) {
        (Some(true), _) => (GOOD, "succeeded"),
        (_, Some(AttemptKind::Abandoned)) => (BAD, "abandoned"),
        (_, Some(AttemptKind::Timeout)) => (BAD, "timed out"),
        (_, Some(AttemptKind::Panic)) => (BAD, "panicked"),
        (_, Some(AttemptKind::Cancelled)) => (WARN, "cancelled"),
        (_, Some(AttemptKind::Refused)) => (BAD, "output refused"),
        (Some(false), _) => (BAD, "failed"),
        (None, _) => (WARN, "in doubt"),
    };
    let what = match attempt.phase {
        Phase::Do => attempt.action.clone(),
        Phase::Undo => format!("undo of {}", attempt.action),
        phase => format!("{} of {}", phase_name(phase), attempt.action),
    };
    let what = visible(&what);
    let (took, began) = (
        time::duration(attempt.duration()),
        time::both(attempt.begin_date, around.now),
    );
    let (number, worker) = (attempt.number, visible(&attempt.worker));
    writeln!(
        text,
        "  {BOLD}{what} #{number}{BOLD:#}  {style}{end}{style:#} after {took}  {DIM}{began}, on {worker}{DIM:#}"
    )?;
    let Some(error) = &attempt.error else {
        if attempt.success != Some(true) {
            writeln!(text, "    {}", in_short(attempt))?;
        }
        return Ok(());
    };
    let kind = Some(&error.kind).filter(|kind| !kind.is_empty());
    let kind = kind.map(|kind| format!("{kind}: ")).unwrap_or_default();
    let message = format!("{kind}{}", error.message);
    for line in message.lines() {
        writeln!(text, "    {}", visible(line))?;
    }
    for cause in &error.chain {
        writeln!(
            text,
            "    caused by: {}",
            if full {
                visible(cause).into_owned()
            } else {
                shortened(cause, VALUE)
            }
        )?;
    }
    if let Some(location) = &error.location {
        writeln!(text, "    {DIM}at {}{DIM:#}", visible(location))?;
    }
    if let Some(stack) = &error.backtrace {
        let lines: Vec<&str> = stack.lines().collect();
        let shown = if full { lines.len() } else { STACK };
        for line in lines.iter().take(shown) {
            let line = visible(line);
            let line = if full { line } else { cut(&line).into() };
            writeln!(text, "    {DIM}{line}{DIM:#}")?;
        }
        if lines.len() > shown {
            let more = counted((lines.len() - shown) as u64, "more line");
            writeln!(text, "    {DIM}… {more}; --full tells all{DIM:#}")?;
        }
    }
    Ok(())
}

/// A line with its indentation, but not much longer than a terminal is wide.
fn cut(line: &str) -> String {
    if line.chars().count() <= FRAME {
        return line.to_owned();
    }
    let kept: String = line.chars().take(FRAME - 1).collect();
    format!("{kept}…")
}

fn mail(
    text: &mut String,
    record: &MilestoneRecord,
    around: &Surroundings<'_>,
    full: bool,
) -> std::fmt::Result {
    if !record.inbox.is_empty() {
        heading(text, "Inbox")?;
        for command in &record.inbox {
            let sent = time::both(command.at, around.now);
            let (name, by) = (command.order.name(), visible(&command.by));
            writeln!(text, "  {name} by {by}, {sent}")?;
        }
    }
    if !record.answers.is_empty() {
        heading(text, "Answers, the newest first")?;
        let shown = if full { record.answers.len() } else { ANSWERS };
        for answer in record.answers.iter().rev().take(shown) {
            let (style, done) = if answer.done {
                (GOOD, "done")
            } else {
                (BAD, "refused")
            };
            let at = time::both(answer.at, around.now);
            writeln!(
                text,
                "  {style}{done}{style:#}  {}  {DIM}{at}{DIM:#}",
                visible(&answer.message)
            )?;
        }
    }
    Ok(())
}

fn values(text: &mut String, record: &MilestoneRecord, full: bool) -> std::fmt::Result {
    let mut value = |name: &str, value: &Bson| {
        if full {
            let lines = json::pretty(value).replace('\n', "\n  ");
            let lines = visible_lines(&lines);
            writeln!(text, "\n{BOLD}{name}{BOLD:#}\n  {lines}")
        } else {
            writeln!(
                text,
                "\n{BOLD}{name}{BOLD:#}\n  {}",
                shortened(&json::line(value), VALUE)
            )
        }
    };
    if record.parameters != Bson::Null {
        value("Parameters", &record.parameters)?;
    }
    let outputs = record.outputs();
    if outputs.is_empty() {
        return Ok(());
    }
    value("Outputs", &outputs.into())
}

#[cfg(test)]
mod tests {
    use milestone_runtime::core::{machine::Task, record::Order};

    use super::*;
    use crate::fixtures::{Story, at, worker};

    fn shown(record: &MilestoneRecord, full: bool) -> String {
        let around = Surroundings {
            now: at(20),
            workers: &[worker(
                "a",
                &["reserve", "charge", "send", "file", "release"],
            )],
            program: "milestone",
        };
        anstream::adapter::strip_str(&page(record, &around, full)).to_string()
    }

    fn undoing() -> MilestoneRecord {
        let story = Story::order().claim().run(0).begin(Task::to_do(1));
        let story = story
            .fail(Task::to_do(1), None, true)
            .begin(Task::to_undo(0));
        let story = story.fail(Task::to_undo(0), None, true).hand_back();
        let mut record = story.claim().command(Order::Resume).hand_back().told();
        record.labels.insert("tenant".to_owned(), "acme".to_owned());
        let stack = (0..9).map(|frame| format!("  {frame}: bank::frame_{frame}\n"));
        if let Some(error) = &mut record.report[0].error {
            error.backtrace = Some(stack.collect());
        }
        record
    }

    #[test]
    fn a_page_is_short_by_default() {
        insta::assert_snapshot!(shown(&undoing(), false));
    }

    #[test]
    fn a_full_page_tells_all() {
        insta::assert_snapshot!(shown(&undoing(), true));
    }
}
