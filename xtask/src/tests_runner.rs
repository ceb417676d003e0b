//! `cargo test` against a server, and what came of it.

mod failures;
mod tally;

use std::env;
use std::io::Write as _;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use self::{failures::Failures, tally::Tally};
use crate::process::Group;
use crate::server::{Binary, Identity, Options, Running, redacted};
use crate::tools::{cargo, readable};

const URI: &str = "MILESTONE_TEST_URI";
/// For tests that start servers of their own, to kill them.
const BINARY: &str = "MILESTONE_TEST_SERVER_BIN";

/// The server that the tests run against.
struct Target {
    uri: String,
    description: String,
    binary: Option<Binary>,
    running: Option<Running>,
}

impl Target {
    async fn find() -> Result<Self> {
        if let Some(uri) = env::var(URI).ok().filter(|uri| !uri.is_empty()) {
            let identity = Identity::of(&uri).await.context(URI)?;
            let binary = Binary::find().await.inspect_err(|error| {
                eprintln!("warning: tests that start a server of their own will fail: {error:#}");
            });
            return Ok(Self {
                description: format!("server    {identity}\nfound     at {URI}"),
                uri,
                binary: binary.ok(),
                running: None,
            });
        }
        let binary = Binary::find().await?;
        let running = Running::start(&binary, &Options::default()).await?;
        Ok(Self {
            uri: running.uri.clone(),
            description: running.description(),
            binary: Some(binary),
            running: Some(running),
        })
    }

    /// A server that died under the tests explains their failures.
    fn check(&mut self) -> Result<()> {
        self.running.as_mut().map_or(Ok(()), Running::check)
    }
}

/// Runs the tests and says how many ran against which server.
pub(crate) async fn run(arguments: &[String]) -> Result<ExitCode> {
    let mut target = Target::find().await?;
    eprintln!("{}\n", target.description);
    let started = Instant::now();
    let (tally, failures, status) = cargo_test(arguments, &target).await?;
    let died = target.check();
    if !status.success() {
        print!("{failures}");
    }
    println!("\n{}", summary(&target, &tally, started.elapsed()));

    for name in failures.names() {
        println!("failed    {name}");
    }
    let verdict = tally.verdict(status.success());
    for problem in verdict.problems {
        println!("error     {problem}");
    }
    if let Err(error) = &died {
        println!("error     {error:#}");
    }
    // The server is stopped first, so that the counts are the last line whatever it says.
    drop(target);
    println!("\n{} passed, {} failed", tally.passed, verdict.failed);
    Ok(if verdict.good && died.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn cargo_test(
    arguments: &[String],
    target: &Target,
) -> Result<(Tally, Failures, ExitStatus)> {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast"]);
    if arguments.is_empty() {
        command.arg("--workspace");
    }
    command.args(arguments).env(URI, &target.uri);
    if let Some(binary) = &target.binary {
        command.env(BINARY, &binary.path);
    }
    command.stdout(Stdio::piped());
    let mut cargo = Group::spawn(command)?;
    let output = cargo.stdout().context("cargo's output is piped")?;
    let mut output = BufReader::new(output);
    let (mut tally, mut failures) = (Tally::default(), Failures::default());
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).await? > 0 {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&line)?;
        stdout.flush()?;
        let text = String::from_utf8_lossy(&line);
        tally.read(&text);
        failures.read(&text);
        line.clear();
    }
    failures.end();
    Ok((tally, failures, cargo.wait().await?))
}

fn summary(target: &Target, tally: &Tally, time: Duration) -> String {
    let mut lines = vec![
        target.description.clone(),
        format!("uri       {}", redacted(&target.uri)),
    ];
    if let Some(time) = target.binary.as_ref().and_then(|binary| binary.built_in) {
        let time = readable(time);
        lines.push(format!(
            "build     {time} for the server, not counted below"
        ));
    }
    lines.push(format!("tests     {tally}, in {}", readable(time)));
    lines.join("\n")
}
