//! `milestone stats`.

use std::collections::BTreeMap;

use bson::{Bson, doc};
use comfy_table::CellAlignment;
use milestone_runtime::{Filter, Status, Tally};

use crate::{
    args::JsonArgs,
    context::{Client, Context},
    exit::Exit,
    json,
    output::{cell, in_short, note, print, table, text_of},
    style::{self, BAD, BOLD, GOOD, WARN},
    time,
};

pub(super) async fn run(
    client: &Client,
    context: &Context,
    args: JsonArgs,
) -> anyhow::Result<Exit> {
    let mut tallies = client.runtime.tally(Filter::new()).await?;
    tallies.sort_by(|a, b| (&a.kind, place(&a.state)).cmp(&(&b.kind, place(&b.state))));
    let now = client.now();
    let workers = client.live_workers().await?.len();
    let oldest = tallies.iter().filter_map(|tally| tally.oldest).min();
    let sum = |of: &dyn Fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let in_doubt = sum(&|tally| {
        if tally.state == Status::InDoubt.as_str() {
            tally.count
        } else {
            0
        }
    });
    let on_hold = sum(&|tally| tally.on_hold);
    if args.json {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let counts = tallies.iter().map(|tally| {
            Bson::from(doc! {
                "type": &tally.kind, "state": &tally.state, "count": number(tally.count),
                "onHold": number(tally.on_hold), "oldest": tally.oldest,
            })
        });
        let all = doc! {
            "counts": counts.collect::<Vec<_>>(), "oldestUnfinished": oldest, "inDoubt": number(in_doubt),
            "onHold": number(on_hold), "liveWorkers": number(workers as u64),
        };
        print(&json::pretty(&all.into()))?;
        return Ok(Exit::Done);
    }
    if tallies.is_empty() {
        note("there are no milestones");
    } else {
        print(&counts(&tallies))?;
    }
    let program = &context.program;
    let mut text = String::new();
    let mut line = |what: &str, style: anstyle::Style, value: &str, then: &str| {
        let name = format!("{what}:");
        push!(
            text,
            "{BOLD}{name:<19}{BOLD:#}{style}{value}{style:#}{then}\n"
        );
    };
    match oldest {
        Some(oldest) => line(
            "oldest unfinished",
            style::PLAIN,
            &time::both(oldest, now),
            "",
        ),
        None => line("oldest unfinished", style::PLAIN, "none", ""),
    }
    let (style, then) = if in_doubt > 0 {
        (BAD, format!("   {program} list --state in_doubt"))
    } else {
        (style::PLAIN, String::new())
    };
    line("in doubt", style, &in_doubt.to_string(), &then);
    let (style, then) = if on_hold > 0 {
        (WARN, format!("   {program} list --on-hold"))
    } else {
        (style::PLAIN, String::new())
    };
    line("on hold", style, &on_hold.to_string(), &then);
    let style = if workers > 0 { GOOD } else { BAD };
    line("live workers", style, &workers.to_string(), "");
    print(&text)?;
    Ok(Exit::Done)
}

/// The place of a state in a life; those that this version does not know come last.
fn place(state: &str) -> (usize, &str) {
    let known = Status::ALL
        .into_iter()
        .position(|status| status.as_str() == state);
    (known.unwrap_or(Status::ALL.len()), state)
}

/// A line for each type, a column for each state that there is.
fn counts(tallies: &[Tally]) -> String {
    let mut states: Vec<&str> = tallies.iter().map(|tally| tally.state.as_str()).collect();
    states.sort_by_key(|state| place(state));
    states.dedup();
    let mut kinds: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for tally in tallies {
        kinds
            .entry(&tally.kind)
            .or_default()
            .insert(&tally.state, tally.count);
    }
    let names: Vec<String> = states.iter().map(|state| state.to_uppercase()).collect();
    let header = ["TYPE"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .chain(["ALL"]);
    let mut table = table(header);
    for (kind, counts) in &kinds {
        let mut row = vec![cell(in_short(kind), BOLD)];
        row.extend(states.iter().map(|state| {
            let style = Status::ALL
                .into_iter()
                .find(|status| status.as_str() == *state);
            let style = style.map_or(style::PLAIN, style::of_status);
            match counts.get(state) {
                Some(count) => cell(count, style),
                None => cell("-", style::DIM),
            }
        }));
        row.push(cell(counts.values().sum::<u64>(), style::PLAIN));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text_of(table)
}
