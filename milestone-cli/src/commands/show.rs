//! `milestone show`.

use crate::{
    args::ShowArgs,
    context::{Client, Context},
    exit::Exit,
    explain::Surroundings,
    json,
    output::print,
    page,
};

pub(super) async fn run(
    client: &Client,
    context: &Context,
    args: ShowArgs,
) -> anyhow::Result<Exit> {
    let record = client.find(&args.id).await?;
    if args.json {
        print(&json::pretty(&record.to_document()?.into()))?;
        return Ok(Exit::Done);
    }
    let around = Surroundings {
        now: client.now(),
        workers: &client.live_workers().await?,
        program: &context.program,
    };
    print(&page::page(&record, &around, args.full))?;
    Ok(Exit::Done)
}
