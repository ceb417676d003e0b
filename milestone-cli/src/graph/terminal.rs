//! A graph in the terminal, with each action's state.

use std::{collections::BTreeMap, time::Duration};

use anstyle::Style;
use bson::DateTime;
use milestone_runtime::{
    MilestoneRecord,
    core::record::{ActionKind, ActionRecord, ActionState, UndoState, VerifyState},
};

use super::{
    condense::{Item, is_remarkable, items},
    lanes::{Line, draw},
};
use crate::{
    output::{counted, shortened},
    style::{self, BOLD, DIM, PLAIN},
    text::visible,
    time,
};

/// How many lanes can be followed with the eye.
const WIDEST: usize = 12;

/// How many lines can be looked through.
const LONGEST: usize = 60;

/// How many names of those before it are told of an action.
const NAMES: usize = 3;

/// Draws the graph. A large one is condensed unless all of it is wanted; what cannot be drawn with its edges is listed.
pub(crate) fn drawing(record: &MilestoneRecord, now: DateTime, whole: bool) -> String {
    let items = items(record, whole);
    let drawn = if items.len() > LONGEST && !whole {
        None
    } else {
        let after: Vec<Vec<usize>> = items.iter().map(|item| item.after.clone()).collect();
        draw(&after, WIDEST)
    };
    match drawn {
        Some(lines) => with_edges(record, now, &items, &lines),
        None => listed(record, now, whole),
    }
}

/// A line: lanes and symbol, name, state, and what else is to say.
struct Row {
    before: String,
    symbol: &'static str,
    behind: String,
    name: String,
    state: String,
    style: Style,
    more: String,
}

fn with_edges(record: &MilestoneRecord, now: DateTime, items: &[Item], lines: &[Line]) -> String {
    let rows = lines.iter().map(|line| {
        let item = line.node.map(|node| &items[node]);
        let mut row = item.map_or_else(Row::empty, |item| row(record, now, item));
        row.before.clone_from(&line.before);
        row.behind.clone_from(&line.behind);
        row
    });
    written(&rows.collect::<Vec<_>>())
}

/// Without edges: those that matter first, each with what it comes after; all of them if that is wanted.
fn listed(record: &MilestoneRecord, now: DateTime, whole: bool) -> String {
    let all = 0..record.actions.len();
    let remarkable = all
        .clone()
        .filter(|index| is_remarkable(&record.actions[*index]));
    let shown: Vec<usize> = if whole {
        all.collect()
    } else {
        remarkable.take(LONGEST).collect()
    };
    let rows = shown.iter().map(|index| {
        let item = Item {
            actions: vec![*index],
            after: Vec::new(),
        };
        let mut row = row(record, now, &item);
        let names = record.actions[*index].after.iter();
        let names: Vec<&str> = names
            .map(|before| record.actions[*before as usize].name.as_str())
            .collect();
        if !names.is_empty() {
            let more = names.len().saturating_sub(NAMES);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let names = names.into_iter().take(NAMES).collect::<Vec<_>>().join(", ");
            row.add(&format!("after {names}{more}"));
        }
        row
    });
    let mut text = written(&rows.collect::<Vec<_>>());
    let rest = (0..record.actions.len()).filter(|index| !shown.contains(index));
    let rest: Vec<usize> = rest.collect();
    if !rest.is_empty() {
        let (count, states) = (counted(rest.len() as u64, "action"), states(record, &rest));
        let more = if shown.is_empty() { "" } else { "more " };
        let count = count.replacen(' ', &format!(" {more}"), 1);
        push!(text, "{DIM}… {count}: {states}; --full lists all{DIM:#}\n");
    }
    text
}

impl Row {
    const fn empty() -> Self {
        Self {
            before: String::new(),
            symbol: "",
            behind: String::new(),
            name: String::new(),
            state: String::new(),
            style: PLAIN,
            more: String::new(),
        }
    }

    fn add(&mut self, what: &str) {
        if !self.more.is_empty() {
            self.more.push_str(", ");
        }
        self.more.push_str(&visible(what));
    }
}

fn row(record: &MilestoneRecord, now: DateTime, item: &Item) -> Row {
    if let [index] = item.actions[..] {
        return one(record, now, &record.actions[index]);
    }
    let [first, .., last] = [
        &record.actions[item.actions[0]].name,
        &record.actions[item.actions[item.actions.len() - 1]].name,
    ];
    Row {
        symbol: "⋮",
        name: format!("{} .. {}", shortened(first, 24), shortened(last, 24)),
        state: format!("{} actions", item.actions.len()),
        style: DIM,
        more: states(record, &item.actions),
        ..Row::empty()
    }
}

fn one(record: &MilestoneRecord, now: DateTime, action: &ActionRecord) -> Row {
    let mut row = Row {
        symbol: style::symbol(action.state),
        name: shortened(&action.name, 60),
        state: style::action_state(action.state).to_owned(),
        style: style::of_action(action.state),
        ..Row::empty()
    };
    if action.kind == ActionKind::Fork {
        row.add("fork");
    }
    if let Some(running) = &action.running {
        let since = elapsed(running.begin_date, now);
        row.add(&format!("attempt {} for {since}", running.number));
    } else if action.attempts > 1 && action.attempts != action.failures {
        row.add(&counted(action.attempts.unsigned_abs(), "attempt"));
    }
    // What is complete no longer struggles.
    if action.failures > 0 && action.state != ActionState::Completed {
        row.add(&failed(action.failures));
    }
    if let Some(at) = action.at {
        row.add(&format!("again {}", time::relative(at, now)));
    }
    if let Some(verify) = action
        .verify
        .as_ref()
        .filter(|_| action.state == ActionState::InDoubt)
    {
        row.add(match verify.state {
            VerifyState::Running => "being verified",
            VerifyState::Failed => "verify failed",
            _ => "to be verified",
        });
        if verify.failures > 0 && verify.state != VerifyState::Failed {
            row.add(&format!("which {}", failed(verify.failures)));
        }
    }
    if let Some(undo) = &action.undo
        && (record.unwind.is_some() || undo.state != UndoState::None)
        && action.attempts > 0
    {
        row.add(style::undo_state(undo.state));
        if undo.failures > 0 && undo.state != UndoState::Failed {
            row.add(&format!("which {}", failed(undo.failures)));
        }
    }
    if let Some(method) = action
        .method
        .as_ref()
        .filter(|method| **method != action.name)
    {
        row.add(&format!("method {method}"));
    }
    row
}

fn failed(failures: i64) -> String {
    match failures {
        1 => "failed once".to_owned(),
        _ => format!("failed {failures} times in a row"),
    }
}

fn elapsed(since: DateTime, now: DateTime) -> String {
    let millis = now
        .timestamp_millis()
        .saturating_sub(since.timestamp_millis());
    time::duration(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// How many are in each state: `480 completed, 17 running`.
fn states(record: &MilestoneRecord, actions: &[usize]) -> String {
    let mut counts: BTreeMap<&str, (usize, ActionState)> = BTreeMap::new();
    for index in actions {
        let state = record.actions[*index].state;
        counts
            .entry(style::action_state(state))
            .or_insert((0, state))
            .0 += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    if let [(name, _)] = counts[..] {
        return format!("all {name}");
    }
    counts.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let told = counts
        .iter()
        .map(|(name, (count, _))| format!("{count} {name}"));
    told.collect::<Vec<_>>().join(", ")
}

/// The rows, with their columns below each other.
fn written(rows: &[Row]) -> String {
    let length = |row: &Row| {
        let texts = [
            row.before.as_str(),
            row.symbol,
            row.behind.as_str(),
            row.name.as_str(),
        ];
        texts.iter().map(|text| text.chars().count()).sum::<usize>() + gaps(row)
    };
    let widest = rows
        .iter()
        .filter(|row| !row.name.is_empty())
        .map(length)
        .max();
    let widest = widest.unwrap_or_default();
    let states = rows
        .iter()
        .map(|row| row.state.chars().count())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for row in rows {
        let style = row.style;
        push!(
            text,
            "{DIM}{}{DIM:#}{style}{}{style:#}",
            row.before,
            row.symbol
        );
        if !row.name.is_empty() {
            if !row.behind.is_empty() {
                push!(text, " {DIM}{}{DIM:#}", row.behind);
            }
            let gap = " ".repeat(widest - length(row) + 2);
            let name = if row.symbol == "⋮" { DIM } else { BOLD };
            push!(
                text,
                " {name}{}{name:#}{gap}{style}{}{style:#}",
                row.name,
                row.state
            );
            if !row.more.is_empty() {
                let gap = " ".repeat(states - row.state.chars().count() + 2);
                push!(text, "{gap}{}", row.more);
            }
        }
        text.push('\n');
    }
    text
}

/// The blanks between symbol, lanes and name.
fn gaps(row: &Row) -> usize {
    1 + usize::from(!row.behind.is_empty())
}

#[cfg(test)]
mod tests {
    use milestone_runtime::core::{
        machine::Task,
        options::Mode,
        record::{AttemptKind, Order},
    };

    use super::*;
    use crate::fixtures::{Story, action, at};

    fn drawn(record: &MilestoneRecord, whole: bool) -> String {
        let text = drawing(record, at(20), whole);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn each_action_stands_with_its_state() {
        let story = Story::order().claim().begin(Task::to_do(0));
        let story = story.fail(Task::to_do(0), None, false);
        insta::assert_snapshot!(drawn(&story.record, false), @r"
        ↻ reserve  backoff  failed once, again in 13s
        · charge   pending
        ├─╮
        · │ send   pending
          · file   pending
        ");
        let story = Story::order()
            .claim()
            .run(0)
            .run(1)
            .run(2)
            .begin(Task::to_do(3));
        insta::assert_snapshot!(drawn(&story.record, false), @r"
        ✓ reserve  completed
        ✓ charge   completed
        ├─╮
        ✓ │ send   completed
          ▶ file   running    attempt 1 for 12s
        ");
    }

    #[test]
    fn what_is_undone_is_told() {
        let story = Story::order().claim().run(0).begin(Task::to_do(1));
        let story = story.fail(Task::to_do(1), Some(AttemptKind::Timeout), false);
        let reason = "a mistake".to_owned();
        let story = story.command(Order::Cancel { reason });
        insta::assert_snapshot!(drawn(&story.record, false), @r"
        ✓ reserve  completed  to be undone
        ? charge   in_doubt   failed once
        ├─╮
        – │ send   skipped
          – file   skipped
        ");
    }

    /// root -> (many side by side) -> done
    fn fan_out(count: usize) -> Story {
        let mut actions = vec![action("root", Mode::Idempotent, &[])];
        actions.extend(
            (1..=count).map(|index| action(&format!("part-{index}"), Mode::Idempotent, &[0])),
        );
        let parts: Vec<usize> = (1..=count).collect();
        actions.push(action("done", Mode::Idempotent, &parts));
        Story::new("FanOut", actions)
    }

    #[test]
    fn a_wide_graph_shows_what_matters_and_counts_the_rest() {
        let story = fan_out(500)
            .claim()
            .run(0)
            .run(1)
            .run(2)
            .begin(Task::to_do(7));
        let story = story
            .fail(Task::to_do(7), None, false)
            .begin(Task::to_do(9));
        insta::assert_snapshot!(drawn(&story.record, false), @r"
        ✓ root                    completed
        ├─┬─╮
        ⋮ │ │ part-1 .. part-500  498 actions  496 ready, 2 completed
        │ ↻ │ part-7              backoff      failed once, again in 19s
        ├─╯ │
        │   ▶ part-9              running      attempt 1 for 10s
        ├───╯
        · done                    pending
        ");
        let whole = drawn(&story.record, true);
        assert_eq!(whole.lines().count(), 502);
        assert!(whole.contains("part-499"));
    }

    #[test]
    fn a_long_row_shows_its_ends() {
        let mut actions = vec![action("step-0", Mode::Idempotent, &[])];
        actions.extend(
            (1..100).map(|index| action(&format!("step-{index}"), Mode::Idempotent, &[index - 1])),
        );
        let mut story = Story::new("Chain", actions).claim();
        for index in 0..40 {
            story = story.run(index);
        }
        let story = story.begin(Task::to_do(40));
        insta::assert_snapshot!(drawn(&story.record, false), @r"
        ✓ step-0              completed
        ⋮ step-1 .. step-38   38 actions  all completed
        ✓ step-39             completed
        ▶ step-40             running     attempt 1 for 0ms
        · step-41             pending
        ⋮ step-42 .. step-98  57 actions  all pending
        · step-99             pending
        ");
    }

    #[test]
    fn what_is_too_tangled_is_listed() {
        let mut actions = vec![action("root", Mode::Idempotent, &[])];
        for index in 0..30 {
            actions.push(action(&format!("load-{index}"), Mode::Idempotent, &[0]));
            actions.push(action(
                &format!("store-{index}"),
                Mode::Idempotent,
                &[1 + 2 * index],
            ));
        }
        let ends: Vec<usize> = (0..30).map(|index| 2 + 2 * index).collect();
        actions.push(action("done", Mode::Idempotent, &ends));
        let story = Story::new("Load", actions)
            .claim()
            .run(0)
            .run(1)
            .begin(Task::to_do(3));
        insta::assert_snapshot!(drawn(&story.record, false), @r"
        ▶ load-1  running  attempt 1 for 14s, after root
        … 61 more actions: 30 pending, 29 ready, 2 completed; --full lists all
        ");
        let whole = drawn(&story.record, true);
        insta::assert_snapshot!(whole.lines().last().unwrap_or_default(), @"· done      pending    after store-0, store-1, store-2 and 27 more");
    }
}
