//! A worker that kills itself: `doomed URI JOURNAL ID WRITE before|after [GRAPH]`. It runs the milestone of that id, which it starts if a
//! graph is named, and ends by SIGABRT before or after its write of that number, or in order where it does not come so far.

use std::{env, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use milestone_tests::{
    doomed::{Doomed, Moment},
    journal::Journal,
    look::patiently,
    place::{bare, unopened},
    sweep,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let mut next = |what| {
        arguments
            .next()
            .with_context(|| format!("{what} is missing"))
    };
    let (uri, journal, id) = (next("the URI")?, next("the journal")?, next("the id")?);
    let at = next("the number of the write")?.parse()?;
    let moment = match &*next("the moment")? {
        "before" => Moment::Before,
        "after" => Moment::After,
        other => bail!("`{other}` is no moment"),
    };
    let journal = Arc::new(Journal::open(Path::new(&journal))?);
    let (store, runtime) = patiently(async || {
        let store = Doomed::new(unopened(&uri), at, moment);
        let builder = bare(&*uri).store(Arc::<Doomed>::clone(&store));
        let builder = builder.lease(Duration::from_millis(300));
        let runtime = sweep::with_actions(builder, &journal).build().await?;
        Ok::<_, milestone_runtime::Error>((store, runtime))
    })
    .await;
    runtime.spawn();
    if let Some(graph) = arguments.next() {
        patiently(async || {
            let start = runtime.start("Sweep", sweep::graph(&graph), ());
            start.id(&*id).await
        })
        .await;
    }
    while patiently(async || runtime.get(&*id).await)
        .await
        .context("the milestone is gone")?
        .next
        .is_some()
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.rest().await;
    Ok(())
}
