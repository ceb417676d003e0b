//! `milestone list`.

use bson::DateTime;
use milestone_runtime::{
    Filter, MilestoneRecord, Page,
    core::record::{ActionKind, ActionState, Unreadable},
};

use crate::{
    args::ListArgs,
    context::{Client, Context},
    exit::Exit,
    explain::in_a_word,
    ids, json,
    output::{cell, id_in_short, in_short, note, print, shortened, table, text_of, width},
    shell, style,
    text::visible,
};

/// How many are read at a time.
const PAGE: usize = 200;

/// The least and, where there is no terminal, the usual width of the last column.
const ERROR: usize = 24;
const USUAL: usize = 80;

pub(super) async fn run(
    client: &Client,
    context: &Context,
    args: ListArgs,
) -> anyhow::Result<Exit> {
    let filter = client.filter(&args.filter);
    let mut page = Page::default();
    if let Some(after) = &args.after {
        page.after = Some(client.id(after).await?);
    }
    let wanted = if args.limit == 0 {
        usize::MAX
    } else {
        args.limit
    };
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    let mut count = 0;
    loop {
        page.limit = PAGE.min(wanted - count);
        let listed = client.runtime.list(filter.clone(), page.clone()).await?;
        count += listed.records.len() + listed.unreadable.len();
        if args.json {
            for record in listed.records {
                print(&json::line(&record.to_document()?.into()))?;
            }
        } else {
            records.extend(listed.records);
        }
        unreadable.extend(listed.unreadable);
        page.after = listed.next;
        if page.after.is_none() || count >= wanted {
            break;
        }
    }
    if !args.json {
        if count == 0 {
            note(nothing(&filter));
        } else {
            print(&listed(&records, client.now()))?;
        }
    }
    tell_unreadable(&unreadable);
    if let Some(next) = page.after {
        let program = &context.program;
        note(&format!(
            "there are more: {program} list .. {}, or --limit 0 for all of them",
            shell::option("--after", &ids::written(&next))
        ));
    }
    Ok(if unreadable.is_empty() {
        Exit::Done
    } else {
        Exit::Error
    })
}

fn nothing(filter: &Filter) -> &'static str {
    if *filter == Filter::new() {
        "there are no milestones"
    } else {
        "there are no milestones like that"
    }
}

pub(super) fn tell_unreadable(unreadable: &[Unreadable]) {
    for one in unreadable {
        let bad = style::BAD;
        let what = one.to_string();
        note(&format!("{bad}unreadable:{bad:#} {}", visible(&what)));
    }
}

fn listed(records: &[MilestoneRecord], now: DateTime) -> String {
    let header = [
        "ID",
        "TYPE",
        "STATE",
        "AGE",
        "ACTIONS",
        "FAILURES",
        "NEWEST ERROR",
    ];
    let rows: Vec<[String; 6]> = records.iter().map(|record| columns(record, now)).collect();
    let mut taken = 0;
    for column in 0..6 {
        let widths = rows.iter().map(|row| row[column].chars().count());
        let widest = widths.chain([header[column].len()]).max();
        taken += widest.unwrap_or_default() + 2;
    }
    let room = width().map_or(USUAL, |width| width.saturating_sub(taken).max(ERROR));
    let mut table = table(header);
    for (record, [id, kind, state, age, actions, failures]) in records.iter().zip(rows) {
        let error = in_a_word(record).unwrap_or_default();
        table.add_row(vec![
            cell(id, style::BOLD),
            cell(kind, style::PLAIN),
            cell(state, style::of_status(record.state)),
            cell(age, style::PLAIN),
            cell(actions, style::PLAIN),
            cell(failures, style::WARN),
            cell(shortened(&error, room), style::PLAIN),
        ]);
    }
    text_of(table)
}

fn columns(record: &MilestoneRecord, now: DateTime) -> [String; 6] {
    let hold = if record.hold.is_some() { " (hold)" } else { "" };
    let actions = record
        .actions
        .iter()
        .filter(|action| action.kind == ActionKind::Action);
    let (mut all, mut done) = (0, 0);
    for action in actions {
        all += 1;
        done += usize::from(action.state == ActionState::Completed);
    }
    let failures = failures(record);
    [
        id_in_short(&record.id),
        in_short(&record.kind),
        format!("{}{hold}", record.state),
        crate::time::age(record.created_at, now),
        format!("{done}/{all}"),
        if failures > 0 {
            failures.to_string()
        } else {
            String::new()
        },
    ]
}

/// The most attempts in a row that have failed of one action, to do it or to undo it. What is complete no longer struggles.
fn failures(record: &MilestoneRecord) -> i64 {
    let of_each = record.actions.iter().map(|action| {
        let to_do = if action.state == ActionState::Completed {
            0
        } else {
            action.failures
        };
        to_do.max(action.undo.as_ref().map_or(0, |undo| undo.failures))
    });
    of_each.max().unwrap_or_default()
}
