//! `milestone graph`.

use milestone_runtime::{Filter, Page};

use crate::{
    args::{FormatArg, GraphArgs},
    context::Client,
    exit::{Exit, Failure},
    graph::diagram,
    output::print,
};

pub(super) async fn run(client: &Client, args: GraphArgs) -> anyhow::Result<Exit> {
    let record = match (&args.id, &args.kind) {
        (Some(id), _) => client.find(id).await?,
        (None, kind) => {
            let kind = kind.as_deref().unwrap_or_default();
            let page = Page {
                after: None,
                limit: 1,
            };
            let listed = client.runtime.list(Filter::new().kind(kind), page).await?;
            if let Some(unreadable) = listed.unreadable.into_iter().next() {
                return Err(unreadable.into());
            }
            let newest = listed.records.into_iter().next();
            newest.ok_or_else(|| {
                Failure::error(
                    Exit::NotFound,
                    format!("there is no milestone of the type `{kind}`"),
                )
            })?
        }
    };
    let with_states = args.id.is_some();
    print(&match args.format {
        FormatArg::Dot => diagram::dot(&record, with_states),
        FormatArg::Mermaid => diagram::mermaid(&record, with_states),
    })?;
    Ok(Exit::Done)
}
