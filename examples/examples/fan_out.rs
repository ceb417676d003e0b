//! A graph that is known only at run time: op-1, then op-2.1 and op-2.2 side by side, then op-3. It is MongoMilestone's
//! `Action("op-1", ["op-2.1", "op-2.2"], "op-3")`.
//!
//! ```text
//! $ cargo run --example fan_out
//! ┌────────┬───────────────────────────────────────┐
//! │ action ┆ saw the parameters and the outputs of │
//! ╞════════╪═══════════════════════════════════════╡
//! │ op-1   ┆                                       │
//! │ op-2.1 ┆ op-1                                  │
//! │ op-2.2 ┆ op-1                                  │
//! │ op-3   ┆ op-1, op-2.1, op-2.2                  │
//! └────────┴───────────────────────────────────────┘
//! the milestone 6b0dc59499d5d5198c223a40 is completed
//! ┌────────┬─────────┬─────────┬──────────────┬────────┬─────────────┬───────┐
//! │ action ┆ attempt ┆ success ┆ began        ┆ took   ┆ worker      ┆ error │
//! ╞════════╪═════════╪═════════╪══════════════╪════════╪═════════════╪═══════╡
//! │ op-1   ┆       1 ┆ yes     ┆ 18:51:00.257 ┆ 103 ms ┆ me-3ee76e3e ┆       │
//! │ op-2.1 ┆       1 ┆ yes     ┆ 18:51:00.360 ┆ 102 ms ┆ me-3ee76e3e ┆       │
//! │ op-2.2 ┆       1 ┆ yes     ┆ 18:51:00.360 ┆ 102 ms ┆ me-3ee76e3e ┆       │
//! │ op-3   ┆       1 ┆ yes     ┆ 18:51:00.462 ┆ 102 ms ┆ me-3ee76e3e ┆       │
//! └────────┴─────────┴─────────┴──────────────┴────────┴─────────────┴───────┘
//! op-2.1 and op-2.2 overlapped: yes
//! ```

use std::time::Duration;

use bson::{Document, doc};
use clap::Parser;
use milestone_examples::table::{report, table};
use milestone_runtime::{
    action::{Call, Options},
    dynamic::Action,
    prelude::*,
};

/// op-1, then op-2.1 and op-2.2 side by side, then op-3.
#[derive(Parser)]
struct Args {
    /// Where the milestones are: `memory:`, `sqlite:FILE` or `mongodb://HOST/DATABASE`
    #[arg(long, default_value = "memory:")]
    uri: String,
}

/// An action that takes its time, and gives what it was called with: the parameters of the milestone and the outputs before it.
fn operation(name: &'static str, before: &'static [&'static str]) -> Method {
    Method::new(name, move |call: Call| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut seen = doc! { "milestone": call.parameters().clone() };
        for action in before {
            let output = call
                .output(action)
                .ok_or_else(|| ActionError::fatal(format!("{action} has not run")))?;
            seen.insert(*action, output["by"].clone());
        }
        Ok::<_, ActionError>(
            doc! { "by": format!("{name} on {}", call.context().worker()), "saw": seen },
        )
    })
    .options(Options::idempotent())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { uri } = Args::parse();
    let runtime = Runtime::builder(uri).worker_name("me").build().await?;
    runtime.register_all([
        operation("op-1", &[]),
        operation("op-2.1", &["op-1"]),
        operation("op-2.2", &["op-1"]),
        operation("op-3", &["op-1", "op-2.1", "op-2.2"]),
    ])?;
    runtime.spawn();

    let graph = Action::new("op-1").next(["op-2.1", "op-2.2"]).done("op-3");
    let operations = runtime
        .start("operations", graph, "some parameters")
        .await?;
    let outputs: Document = operations.outcome().await?;

    let mut seen = table(["action", "saw the parameters and the outputs of"]);
    for (action, output) in &outputs {
        let saw = output
            .as_document()
            .and_then(|output| output.get_document("saw").ok());
        let names: Vec<&str> = saw
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        seen.add_row([action.clone(), names[1..].join(", ")]);
    }
    println!("{seen}");

    let record = operations.ended().await?;
    println!("{}", report(&record));
    let [first, second] = ["op-2.1", "op-2.2"].map(|name| {
        let attempt = record.report.iter().find(|attempt| attempt.action == name);
        attempt.expect("it has run, since the milestone is complete")
    });
    let together = first.begin_date < second.end_date && second.begin_date < first.end_date;
    println!(
        "op-2.1 and op-2.2 overlapped: {}",
        if together { "yes" } else { "no" }
    );
    runtime.shutdown().await;
    Ok(())
}
