//! `milestone resolve`.

use std::{fs::File, io::Read, path::Path};

use anyhow::Context as _;
use bson::Bson;
use clap::{CommandFactory as _, error::ErrorKind};
use milestone_runtime::core::record::{ActionState, Order};

use super::send;
use crate::{
    args::{Cli, ResolveArgs},
    context::{Client, Context},
    exit::{Exit, Failure},
    json, time,
};

/// How much is read of an output: as much as a worker stores at the most unless it is told to store more, and some for blanks.
const LONGEST: u64 = 1024 * 1024 + 64 * 1024;

pub(super) async fn run(
    client: &Client,
    context: &Context,
    args: ResolveArgs,
) -> anyhow::Result<Exit> {
    let output = output(&args)?;
    let record = client.find(&args.id).await?;
    let name = &args.action;
    let Some((_, action)) = record.action(name) else {
        let known: Vec<_> = record
            .actions
            .iter()
            .map(|action| action.name.as_str())
            .take(20)
            .collect();
        let text = format!(
            "the milestone has no action `{name}`; it has {}",
            known.join(", ")
        );
        return Err(Failure::error(Exit::Refused, text));
    };
    let now = client.now();
    let settles = action.settle_after.filter(|settled| {
        action.state == ActionState::InDoubt && args.not_applied && *settled > now
    });
    if let Some(settled) = settles.filter(|_| !args.force) {
        let from = time::both(settled, now);
        let text = format!(
            "until {from} the old attempt of `{name}` may still take effect, and running it again could do it twice: wait until then, or \
             say --force if you know that it cannot"
        );
        return Err(Failure::error(Exit::Refused, text));
    }
    let order = Order::Resolve {
        action: args.action,
        // Of the attempt that was seen: a later one must not be taken for it.
        attempt: Some(action.attempts),
        applied: args.applied,
        output,
    };
    send::one(client, context, record.id.clone(), order, args.wait).await
}

fn output(args: &ResolveArgs) -> anyhow::Result<Bson> {
    let text = match (&args.output, &args.output_file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => read(file)?,
        (None, None) => return Ok(Bson::Null),
    };
    Ok(json::read(&text)
        .unwrap_or_else(|error| wrong(format!("the output is {error}; a string is '\"..\"'"))))
}

fn wrong(what: String) -> ! {
    Cli::command()
        .error(ErrorKind::ValueValidation, what)
        .exit()
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        return read_from(std::io::stdin().lock(), "the standard input");
    }
    let name = file.display().to_string();
    let file = File::open(file).with_context(|| format!("{name} cannot be read"))?;
    read_from(file, &name)
}

fn read_from(from: impl Read, name: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    from.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{name} cannot be read"))?;
    if bytes.len() as u64 > LONGEST {
        wrong(format!(
            "{name} is no output: it has more than {LONGEST} bytes"
        ));
    }
    String::from_utf8(bytes).with_context(|| format!("{name} is no text"))
}
