//! `milestone workers`.

use bson::Bson;

use crate::{
    args::JsonArgs,
    context::Client,
    exit::Exit,
    json,
    output::{cell, in_short, note, print, shortened, table, text_of},
    style, time,
};

/// How much of the names of methods is told in a table.
const METHODS: usize = 60;

pub(super) async fn run(client: &Client, args: JsonArgs) -> anyhow::Result<Exit> {
    let now = client.now();
    let workers = client.runtime.workers().await?;
    if args.json {
        for worker in workers {
            let mut document = bson::serialize_to_document(&worker)?;
            document.insert("live", worker.lives_at(now));
            print(&json::line(&Bson::Document(document)))?;
        }
        return Ok(Exit::Done);
    }
    if workers.is_empty() {
        note("no worker has told that it lives");
        return Ok(Exit::Done);
    }
    let mut table = table(["NAME", "LIVE", "SINCE", "SEEN", "QUEUES", "METHODS", "ID"]);
    for worker in &workers {
        let (live, style) = if worker.lives_at(now) {
            ("yes", style::GOOD)
        } else {
            ("no", style::BAD)
        };
        let methods = shortened(&worker.methods.join(","), METHODS);
        table.add_row(vec![
            cell(in_short(&worker.name), style::BOLD),
            cell(live, style),
            cell(time::relative(worker.since, now), style::PLAIN),
            cell(time::relative(worker.seen_at, now), style::PLAIN),
            cell(shortened(&worker.queues.join(","), METHODS), style::PLAIN),
            cell(methods, style::PLAIN),
            cell(in_short(&worker.id), style::PLAIN),
        ]);
    }
    print(&text_of(table))?;
    Ok(Exit::Done)
}
