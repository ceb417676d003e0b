//! `cargo xtask example`: an example that needs MongoDB, in one command.

use std::process::ExitCode;

use anyhow::Result;

use crate::process::Group;
use crate::server::{Binary, Options, Running};
use crate::tools::cargo;

pub(crate) async fn run(name: &str, arguments: &[String]) -> Result<ExitCode> {
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", "milestone-examples", "--example"]);
    command.arg(name);
    // Acknowledged writes survive whatever the example kills.
    let options = Options {
        durable: true,
        ..Options::default()
    };
    let server = Running::start(&Binary::find().await?, &options).await?;
    command.args(["--", "--uri", &format!("{}/examples", server.uri)]);
    command.args(arguments);
    let status = Group::spawn(command)?.wait().await?;
    drop(server);
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
