//! The commands: they read and write, and leave to the pure parts what is to be said.

mod bulk;
mod doctor;
mod graph;
mod list;
mod remove;
mod resolve;
mod send;
mod show;
mod stats;
mod workers;

use milestone_runtime::core::record::Order;

use crate::{args::Command, context::Context, exit::Exit};

/// Carries a command out.
pub(crate) async fn run(command: Command, context: Context) -> anyhow::Result<Exit> {
    let client = context.connect().await?;
    match command {
        Command::List(args) => list::run(&client, &context, args).await,
        Command::Show(args) => show::run(&client, &context, args).await,
        Command::Retry(args) => bulk::run(&client, &context, args, Order::Retry).await,
        Command::Cancel(args) => {
            let reason = args.reason;
            bulk::run(&client, &context, args.many, Order::Cancel { reason }).await
        }
        Command::Pause(args) => {
            let reason = args.reason;
            bulk::run(&client, &context, args.many, Order::Pause { reason }).await
        }
        Command::Resume(args) => bulk::run(&client, &context, args, Order::Resume).await,
        Command::Resolve(args) => resolve::run(&client, &context, args).await,
        Command::Waive(args) => {
            let id = client.id(&args.id).await?;
            let order = Order::Waive {
                action: args.action,
            };
            send::one(&client, &context, id, order, args.wait).await
        }
        Command::Remove(args) => remove::run(&client, args).await,
        Command::Stats(args) => stats::run(&client, &context, args).await,
        Command::Workers(args) => workers::run(&client, args).await,
        Command::Doctor(args) => doctor::run(&client, args).await,
        Command::Graph(args) => graph::run(&client, args).await,
    }
}
