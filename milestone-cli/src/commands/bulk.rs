//! `milestone retry`, `cancel`, `pause` and `resume`: of one milestone, of several, or of all that a filter finds.

use std::collections::HashMap;

use bson::doc;
use clap::{CommandFactory as _, error::ErrorKind};
use futures_util::{StreamExt as _, stream};
use milestone_runtime::{Filter, MilestoneId, Page, Status, core::record::Order};

use super::{
    list::tell_unreadable,
    send::{self, Became},
};
use crate::{
    args::{Cli, FilterArgs, ManyArgs},
    context::{Client, Context},
    exit::Exit,
    json,
    output::{confirm, counted, note, print},
};

/// How many are sent at once.
const AT_ONCE: usize = 16;

/// How many are read at a time.
const PAGE: usize = 200;

/// How many refusals are told one by one.
const TOLD: usize = 20;

pub(super) async fn run(
    client: &Client,
    context: &Context,
    args: ManyArgs,
    order: Order,
) -> anyhow::Result<Exit> {
    if let [id] = args.ids.as_slice() {
        let id = client.id(id).await?;
        return send::one(client, context, id, order, args.wait).await;
    }
    let name = order.name();
    let ids = if args.ids.is_empty() {
        if args.filter.is_empty() && !args.all {
            let what = format!(
                "name the milestones, or say which: `milestone {name} ID`, `milestone {name} --type NAME --state STATE`, `--all`"
            );
            Cli::command()
                .error(ErrorKind::MissingRequiredArgument, what)
                .exit();
        }
        let ids = matching(client, &args.filter, &order).await?;
        if ids.is_empty() {
            summary(name, &Counts::default(), args.wait.json)?;
            return Ok(Exit::Done);
        }
        if !args.yes {
            let which = described(&args.filter);
            let question = format!("{name} {}{which}?", counted(ids.len() as u64, "milestone"));
            match confirm(&question)? {
                Some(true) => {}
                Some(false) => {
                    note("nothing was sent");
                    return Ok(Exit::Done);
                }
                None => {
                    let what = format!("{question} There is nobody to ask: confirm it with --yes");
                    Cli::command()
                        .error(ErrorKind::MissingRequiredArgument, what)
                        .exit();
                }
            }
        }
        ids
    } else {
        let mut ids = Vec::new();
        for id in &args.ids {
            let id = client.id(id).await?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    };
    send_all(client, ids, &order, &args).await
}

/// The milestones that the filter finds and whose state accepts the command.
async fn matching(
    client: &Client,
    args: &FilterArgs,
    order: &Order,
) -> anyhow::Result<Vec<MilestoneId>> {
    let mut filter: Filter = client.filter(args);
    let accepted = order.accepted_in();
    if filter.states.is_empty() {
        filter.states = match order {
            // What is undone without trouble is not meant.
            Order::Retry => vec![Status::Failed],
            _ => accepted,
        };
    }
    let mut ids = Vec::new();
    let mut page = Page {
        after: None,
        limit: PAGE,
    };
    loop {
        let listed = client.runtime.list(filter.clone(), page.clone()).await?;
        tell_unreadable(&listed.unreadable);
        ids.extend(listed.records.into_iter().map(|record| record.id));
        match listed.next {
            Some(next) => page.after = Some(next),
            None => return Ok(ids),
        }
    }
}

/// The filter in words.
fn described(args: &FilterArgs) -> String {
    let mut words = Vec::new();
    words.extend(args.kind.as_ref().map(|kind| format!("of type {kind}")));
    if !args.states.is_empty() {
        let states = args.states.iter().map(|state| state.0.as_str());
        words.push(format!(
            "in state {}",
            states.collect::<Vec<_>>().join(" or ")
        ));
    }
    words.extend(
        args.labels
            .iter()
            .map(|(name, value)| format!("with {name}={value}")),
    );
    if args.created_after.is_some() || args.created_before.is_some() {
        words.push("of that time".to_owned());
    }
    if args.on_hold {
        words.push("on hold".to_owned());
    }
    if words.is_empty() {
        String::new()
    } else {
        format!(" {}", words.join(", "))
    }
}

#[derive(Debug, Default)]
struct Counts {
    matched: usize,
    done: usize,
    refused: usize,
    gone: usize,
    unanswered: usize,
    failed: usize,
}

impl Counts {
    const fn exit(&self) -> Exit {
        if self.failed > 0 {
            Exit::Error
        } else if self.refused > 0 {
            Exit::Refused
        } else if self.gone > 0 {
            Exit::NotFound
        } else if self.unanswered > 0 {
            Exit::Unanswered
        } else {
            Exit::Done
        }
    }
}

async fn send_all(
    client: &Client,
    ids: Vec<MilestoneId>,
    order: &Order,
    args: &ManyArgs,
) -> anyhow::Result<Exit> {
    let name = order.name();
    let mut results: Vec<(MilestoneId, Became)> = Vec::new();
    let mut sent = Vec::new();
    let places = ids.iter().cloned().enumerate();
    let places: HashMap<MilestoneId, usize> = places.map(|(place, id)| (id, place)).collect();
    let mut sending = stream::iter(ids)
        .map(|id| async move {
            let result = client.runtime.send(id.clone(), order.clone()).await;
            (id, result)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((id, result)) = sending.next().await {
        match result {
            Ok(command) => sent.push(command),
            Err(error) => results.push((id, Became::Failed(error))),
        }
    }
    let waited_for: Vec<MilestoneId> = sent.iter().map(|sent| sent.milestone().clone()).collect();
    let mut answers = send::answers(client, sent, args.wait.timeout).await?;
    for id in waited_for {
        let became = answers.remove(&id).unwrap_or(Became::Unanswered);
        results.push((id, became));
    }
    results.sort_by_key(|(id, _)| places.get(id).copied());
    let mut counts = Counts {
        matched: results.len(),
        ..Counts::default()
    };
    let mut told = 0;
    for (id, became) in &results {
        let failed = match became.exit() {
            Exit::Done => {
                counts.done += 1;
                false
            }
            Exit::Unanswered => {
                counts.unanswered += 1;
                false
            }
            Exit::Refused => {
                counts.refused += 1;
                true
            }
            Exit::NotFound => {
                counts.gone += 1;
                true
            }
            _ => {
                counts.failed += 1;
                true
            }
        };
        if args.wait.json || !args.ids.is_empty() {
            send::tell(id, name, became, args.wait.json)?;
        } else if failed && told < TOLD {
            told += 1;
            send::tell(id, name, became, false)?;
        }
    }
    if args.ids.is_empty() {
        summary(name, &counts, args.wait.json)?;
    }
    if counts.unanswered > 0 {
        note(&format!(
            "what no worker has answered within {} stays in the inboxes, and is carried out by whoever takes the milestones next",
            humantime::format_duration(args.wait.timeout)
        ));
    }
    Ok(counts.exit())
}

/// How many matched, and what became of them.
fn summary(name: &str, counts: &Counts, json: bool) -> std::io::Result<()> {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    if json {
        let line = doc! {
            "command": name, "matched": number(counts.matched), "done": number(counts.done),
            "refused": number(counts.refused), "unanswered": number(counts.unanswered),
            "gone": number(counts.gone), "errors": number(counts.failed),
        };
        return print(&json::line(&line.into()));
    }
    let mut text = format!(
        "{name}: {} matched, {} done, {} refused",
        counts.matched, counts.done, counts.refused
    );
    for (count, what) in [
        (counts.unanswered, "not answered yet"),
        (counts.gone, "gone"),
        (counts.failed, "failed to be sent"),
    ] {
        if count > 0 {
            push!(text, ", {count} {what}");
        }
    }
    print(&text)
}
