//! `milestone doctor`.

use std::io::{IsTerminal as _, Write as _};

use milestone_runtime::{Filter, Page};

use crate::{args::JsonArgs, checkup::Checkup, context::Client, exit::Exit, json, output::print};

/// How many are read at a time.
const PAGE: usize = 200;

pub(super) async fn run(client: &Client, args: JsonArgs) -> anyhow::Result<Exit> {
    let workers = client.live_workers().await?;
    let mut checkup = Checkup::new(&workers, client.runtime.lacked());
    let mut page = Page {
        after: None,
        limit: PAGE,
    };
    loop {
        let listed = client.runtime.list(Filter::new(), page.clone()).await?;
        for record in &listed.records {
            checkup.look_at(record);
        }
        checkup.unreadable(listed.unreadable);
        progress(&checkup);
        match listed.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    if args.json {
        print(&json::pretty(&checkup.document().into()))?;
    } else {
        print(&checkup.told())?;
    }
    Ok(if checkup.is_well() {
        Exit::Done
    } else {
        Exit::Unhealthy
    })
}

/// Somebody who sits and waits is told how far it is.
fn progress(checkup: &Checkup<'_>) {
    let mut err = std::io::stderr();
    if err.is_terminal() && checkup.count() > PAGE {
        // There is nobody to tell that nothing can be told.
        let _ = write!(err, "\r{} milestones ..\r", checkup.count());
    }
}
