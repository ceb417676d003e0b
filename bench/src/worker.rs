//! The program as a process of its own: it runs itself again, as a worker or a client, and the copy is asked by lines of JSON.

pub(crate) mod ours;
pub(crate) mod raw;

use std::{env, io::Write as _, process::Stdio, thread};

use anyhow::{Context as _, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
};

/// What the copy is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// A worker of milestones, idle until it is told to work.
    Worker { uri: String, places: usize },
    /// A client that starts a milestone whenever it is told to.
    Client { uri: String },
    /// The raw driver, taking and completing what is due.
    RawWorker {
        uri: String,
        database: String,
        batch: usize,
        spread: usize,
    },
    /// The raw driver, storing a milestone whenever it is told to.
    RawClient { uri: String, database: String },
}

/// What the copy is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Work: ours until the process ends, the raw driver until nothing is due.
    Work,
    /// Start one milestone.
    Start,
    /// Tell how far it is.
    Tell,
}

/// What it answers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// How many actions it has run.
    pub(crate) done: u64,
    /// How many milestones it saw as due and did not get.
    pub(crate) missed: u64,
    /// How much memory the process has in use, in KiB.
    pub(crate) resident: u64,
}

/// A copy of this program. Dropped, it is killed; it ends by itself when this program has ended.
pub(crate) struct Process {
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Process {
    /// Starts it, and waits until it is ready.
    pub(crate) async fn start(job: &Job) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg("worker")
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("this program cannot be run again")?;
        let orders = child.stdin.take().context("its input is piped")?;
        let answers = child.stdout.take().context("its output is piped")?;
        let mut process = Self {
            orders,
            answers: BufReader::new(answers).lines(),
            _child: child,
        };
        process.answer().await?;
        Ok(process)
    }

    /// Tells it to do something, which it answers when it is done.
    pub(crate) async fn tell(&mut self, order: Order) -> Result<()> {
        let line = serde_json::to_string(&order)? + "\n";
        self.orders.write_all(line.as_bytes()).await?;
        Ok(self.orders.flush().await?)
    }

    /// Its next answer.
    pub(crate) async fn answer(&mut self) -> Result<Answer> {
        let line = self.answers.next_line().await?;
        let line = line.context("a process of the benchmark has ended, as it says above")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Tells it to do something, and waits until it is done.
    pub(crate) async fn ask(&mut self, order: Order) -> Result<Answer> {
        self.tell(order).await?;
        self.answer().await
    }
}

#[derive(Args)]
pub(crate) struct Options {
    /// What it is to be, as JSON
    job: String,
}

/// Is what the job says, until its input ends.
pub(crate) async fn run(options: Options) -> Result<()> {
    let (tell, mut orders) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
        // Whoever wanted to know something is gone, whatever goes on here.
        std::process::exit(0);
    });
    let role = Role::new(serde_json::from_str(&options.job)?).await?;
    answer(Answer::default())?;
    while let Some(line) = orders.recv().await {
        answer(role.obey(serde_json::from_str(&line)?).await?)?;
    }
    Ok(())
}

fn answer(answer: Answer) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(&answer)?)?;
    Ok(output.flush()?)
}

enum Role {
    Worker(ours::Worker),
    Client(ours::Client),
    RawWorker(raw::Queue, usize),
    RawClient(raw::Client),
}

impl Role {
    async fn new(job: Job) -> Result<Self> {
        Ok(match job {
            Job::Worker { uri, places } => Self::Worker(ours::Worker::new(&uri, places).await?),
            Job::Client { uri } => Self::Client(ours::Client::new(&uri).await?),
            Job::RawWorker {
                uri,
                database,
                batch,
                spread,
            } => {
                let client = mongodb::Client::with_uri_str(&uri).await?;
                Self::RawWorker(raw::Queue::new(&client.database(&database), spread), batch)
            }
            Job::RawClient { uri, database } => {
                let client = mongodb::Client::with_uri_str(&uri).await?;
                Self::RawClient(raw::Client::new(&client.database(&database)).await?)
            }
        })
    }

    async fn obey(&self, order: Order) -> Result<Answer> {
        match (self, order) {
            (Self::Worker(worker), Order::Work) => worker.work(),
            (Self::Client(client), Order::Start) => client.start().await?,
            (Self::RawWorker(queue, batch), Order::Work) => return queue.drain(*batch).await,
            (Self::RawClient(client), Order::Start) => client.start().await?,
            (_, Order::Tell) => {}
            (_, order) => anyhow::bail!("this process has no way to obey {order:?}"),
        }
        let mut answer = match self {
            Self::Worker(worker) => worker.answer(),
            _ => Answer::default(),
        };
        answer.resident = resident()?;
        Ok(answer)
    }
}

/// How much memory this process has in use, in KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .context("the system does not tell how much memory is in use")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("the memory in use is not told")?.parse()?)
}
