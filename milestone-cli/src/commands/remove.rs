//! `milestone remove`.

use bson::doc;
use clap::{CommandFactory as _, error::ErrorKind};

use crate::{
    args::{Cli, RemoveArgs},
    context::Client,
    exit::Exit,
    ids, json,
    output::{confirm, note, print},
    style::{BAD, GOOD},
    text::visible,
};

pub(super) async fn run(client: &Client, args: RemoveArgs) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    for id in &args.ids {
        let (id, state) = match id.meanings.as_slice() {
            // What cannot be read can be removed, too.
            [only] if args.yes => (only.clone(), None),
            _ => match client.find(id).await {
                Ok(record) => (record.id.clone(), Some(record)),
                Err(error) => {
                    exit = crate::exit::report(&error);
                    continue;
                }
            },
        };
        let name = ids::written(&id);
        if !args.yes {
            let mut what = format!("remove {name}");
            if let Some(record) = &state {
                what = format!("{what} ({}, {})", visible(&record.kind), record.state);
                if !record.state.is_terminal() {
                    what.push_str(", which is not over");
                }
            }
            match confirm(&format!("{what}?"))? {
                Some(true) => {}
                Some(false) => {
                    note(&format!("{name}: nothing was removed"));
                    continue;
                }
                None => {
                    let what = format!("{what}? There is nobody to ask: confirm it with --yes");
                    Cli::command()
                        .error(ErrorKind::MissingRequiredArgument, what)
                        .exit();
                }
            }
        }
        let removed = client.runtime.remove(id.clone()).await?;
        if args.json {
            let outcome = if removed { "done" } else { "not_found" };
            print(&json::line(
                &doc! { "id": id, "command": "remove", "outcome": outcome }.into(),
            ))?;
        } else if removed {
            print(&format!("{name}: {GOOD}removed{GOOD:#}"))?;
        } else {
            note(&format!(
                "{BAD}error:{BAD:#} there is no milestone `{name}`, or no longer"
            ));
        }
        if !removed {
            exit = Exit::NotFound;
        }
    }
    Ok(exit)
}
