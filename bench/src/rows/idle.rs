//! A worker without work beside many finished milestones.

mod explain;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, RawDocumentBuf};
use milestone_runtime::Runtime;
use mongodb::Collection;

use self::explain::Plan;
use crate::{
    bench::{Bench, Scratch},
    commands::{Command, Commands, Kind},
    row::{Row, Target},
    statistics::{float, median, ms},
    template::{self, MILESTONES},
    worker::ours::{bare, step},
};

/// How many finished milestones there are at first.
const FEW: usize = 1_000;

/// How many milestones are taken at once, and how many places the worker has.
const PLACES: usize = 100;

/// Short, since a worker leaves the leases of others alone for as long after its start.
const LEASE: Duration = Duration::from_secs(3);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Row>> {
    let many = bench.pick(1_000_000, 100_000, 2_000);
    let rounds = bench.pick(15, 9, 3);
    let window = Duration::from_secs(bench.pick(60, 20, 2));
    let idle = Idle::new(bench).await?;
    idle.finished(bench, FEW).await?;
    let few = idle.measure(rounds).await?;
    idle.finished(bench, many - FEW).await?;
    let all = idle.measure(rounds).await?;
    let plan = idle.explain().await?;
    let commands = idle.watch(window).await?;
    let mut rows = counts(many, window, &commands);
    rows.push(plan.row(many));
    let name = |what: &str| format!("idle: {what}, {many} finished against {FEW}");
    rows.push(Row::against(
        name("a poll that finds nothing"),
        "ms",
        few.poll,
        all.poll,
    ));
    rows.push(
        Row::against(
            name(&format!("a claim of {PLACES}")),
            "ms",
            few.claim,
            all.claim,
        )
        .note("two queries and one update, as the driver measures them"),
    );
    Ok(rows)
}

/// What a worker sends while it has nothing to do.
fn counts(many: usize, window: Duration, commands: &[Command]) -> Vec<Row> {
    let count = |kind: Kind| {
        commands
            .iter()
            .filter(|command| command.kind == kind)
            .count()
    };
    let (looks, reads) = (count(Kind::Look), count(Kind::Read));
    let heartbeats = |command: &&Command| command.collection.ends_with(".workers");
    let writes: Vec<_> = commands
        .iter()
        .filter(|command| matches!(command.kind, Kind::Claim | Kind::Write))
        .collect();
    let lives = writes.iter().copied().filter(heartbeats).count();
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for command in commands {
        *by_name.entry(&command.name).or_default() += 1;
    }
    let all: Vec<_> = by_name
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    vec![
        Row::alone(
            format!("idle, {many} finished: queries of milestones a poll"),
            "queries",
            float(looks + reads) / float(looks.max(1)),
        )
        .target(Target::AtMost(1.0))
        .note(format!(
            "{looks} polls in {} s; all commands of that time: {}",
            window.as_secs(),
            all.join(", ")
        )),
        Row::alone(
            format!("idle, {many} finished: writes"),
            "writes",
            float(writes.len() - lives),
        )
        .target(Target::AtMost(0.0))
        .note(format!(
            "without the worker's word that it lives, once a minute ({lives} in that time)"
        )),
    ]
}

/// How long the server takes, in milliseconds.
struct Times {
    poll: f64,
    claim: f64,
}

/// A worker whose commands are seen.
struct Idle {
    scratch: Scratch,
    milestones: Collection<RawDocumentBuf>,
    due: Document,
    commands: Commands,
    runtime: Runtime,
}

impl Idle {
    async fn new(bench: &Bench) -> Result<Self> {
        let scratch = bench.database();
        let commands = Commands::default();
        let store = commands.store(&scratch).await?;
        let runtime = bare("")
            .store(Arc::new(store))
            .concurrency(PLACES)
            .lease(LEASE)
            .register(step(|_| {}))
            .build()
            .await?;
        // From then on a poll looks for the expired leases of others too.
        tokio::time::sleep(LEASE + LEASE / 4).await;
        Ok(Self {
            milestones: scratch.database.collection(MILESTONES),
            due: template::due(bench).await?,
            scratch,
            commands,
            runtime,
        })
    }

    /// Adds so many that are over.
    async fn finished(&self, bench: &Bench, count: usize) -> Result<()> {
        let finished = template::finished(bench).await?;
        template::fill(&self.milestones, &finished, count).await
    }

    /// Passes of the worker, by turns with nothing due and with as much as it has places.
    async fn measure(&self, rounds: usize) -> Result<Times> {
        let (mut polls, mut claims) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            self.commands.take();
            self.runtime.run_once().await?;
            let poll = time(&self.commands.take(), &[Kind::Look])?;
            template::fill(&self.milestones, &self.due, PLACES).await?;
            self.commands.take();
            let found = self.runtime.run_once().await?.found;
            ensure!(found == PLACES, "a pass has found {found} of {PLACES}");
            let claim = time(
                &self.commands.take(),
                &[Kind::Look, Kind::Read, Kind::Claim],
            )?;
            // The first one opens connections.
            if round > 0 {
                polls.push(poll);
                claims.push(claim);
            }
        }
        Ok(Times {
            poll: median(&polls),
            claim: median(&claims),
        })
    }

    /// How the server finds what is due, where as much is due as the worker has places, and where ten times as much is.
    async fn explain(&self) -> Result<Plan> {
        self.commands.take();
        self.runtime.run_once().await?;
        let commands = self.commands.take();
        let look = commands
            .into_iter()
            .find(|command| command.kind == Kind::Look);
        let look = look.context("a pass looks for what is due")?.body;
        template::fill(&self.milestones, &self.due, PLACES).await?;
        let plan = explain::plan(&self.scratch.database, &look, PLACES).await?;
        template::fill(&self.milestones, &self.due, 9 * PLACES).await?;
        let more = explain::plan(&self.scratch.database, &look, PLACES).await?;
        self.runtime.run_once().await?;
        Ok(plan.beside(&more))
    }

    /// What it sends while it works and there is nothing to do.
    async fn watch(&self, window: Duration) -> Result<Vec<Command>> {
        const SETTLED: Duration = Duration::from_secs(3);
        let robot = self.runtime.spawn();
        // Until then it polls more often.
        tokio::time::sleep(SETTLED).await;
        self.commands.take();
        tokio::time::sleep(window).await;
        let commands = self.commands.take();
        robot.shutdown().await;
        Ok(commands)
    }
}

/// How long the first commands of these kinds took, one after the other, in milliseconds.
fn time(commands: &[Command], kinds: &[Kind]) -> Result<f64> {
    let mut sum = 0.0;
    for kind in kinds {
        let first = commands.iter().find(|command| command.kind == *kind);
        let took = first.and_then(|command| command.took);
        sum += ms(took.with_context(|| format!("a pass without a {kind:?} command"))?);
    }
    Ok(sum)
}
