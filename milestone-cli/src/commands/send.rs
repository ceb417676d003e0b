//! Sending commands, and waiting for what becomes of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bson::doc;
use milestone_runtime::{
    CommandError, Error, Filter, MilestoneId, Page, SentCommand, core::record::Order,
};

use crate::{
    args::WaitArgs,
    context::{Client, Context},
    exit::{self, Exit},
    ids, json,
    output::{note, print},
    shell,
    style::{BAD, GOOD, WARN},
    text::{visible, visible_lines},
};

/// How many answers are looked for in one read.
const CHUNK: usize = 200;

/// How often answers are looked for.
const FIRST: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(500);

/// What became of a command.
#[derive(Debug)]
pub(super) enum Became {
    Done(String),
    Failed(CommandError),
    /// Nobody has answered yet.
    Unanswered,
}

impl Became {
    pub(super) const fn exit(&self) -> Exit {
        match self {
            Self::Done(_) => Exit::Done,
            Self::Failed(error) => exit::of_command(error),
            Self::Unanswered => Exit::Unanswered,
        }
    }

    /// The name of what became of it, for programs.
    const fn name(&self) -> &'static str {
        match self.exit() {
            Exit::Done => "done",
            Exit::NotFound => "not_found",
            Exit::Refused => "refused",
            Exit::Unanswered => "unanswered",
            _ => "error",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Done(message) => message.clone(),
            Self::Failed(error) => error.to_string(),
            Self::Unanswered => "no worker has answered yet".to_owned(),
        }
    }
}

/// Sends a command to one milestone, and tells what became of it.
pub(super) async fn one(
    client: &Client,
    context: &Context,
    id: MilestoneId,
    order: Order,
    wait: WaitArgs,
) -> anyhow::Result<Exit> {
    let name = order.name();
    let became = match client.runtime.send(id.clone(), order).await {
        Ok(sent) => {
            let mut answers = answers(client, vec![sent], wait.timeout).await?;
            answers.remove(&id).unwrap_or(Became::Unanswered)
        }
        Err(error) => Became::Failed(error),
    };
    tell(&id, name, &became, wait.json)?;
    if matches!(became, Became::Unanswered) {
        tell_unanswered(client, context, &id, wait).await?;
    }
    Ok(became.exit())
}

/// Tells what became of the command to one milestone.
pub(super) fn tell(
    id: &MilestoneId,
    order: &str,
    became: &Became,
    json: bool,
) -> std::io::Result<()> {
    if json {
        let line = doc! {
            "id": id.clone(), "command": order, "outcome": became.name(), "message": became.message(),
        };
        return print(&json::line(&line.into()));
    }
    let id = ids::written(id);
    match became {
        Became::Done(message) => print(&format!(
            "{id}: {GOOD}{order} done{GOOD:#}, {}",
            visible(message)
        )),
        Became::Failed(error) => {
            let error = error.to_string();
            note(&format!("{BAD}error:{BAD:#} {}", visible_lines(&error)));
            Ok(())
        }
        Became::Unanswered => print(&format!("{id}: {WARN}{order} sent{WARN:#}")),
    }
}

/// Says what happens to a command that nobody has answered.
async fn tell_unanswered(
    client: &Client,
    context: &Context,
    id: &MilestoneId,
    wait: WaitArgs,
) -> anyhow::Result<()> {
    let mut text = format!(
        "no worker has answered within {}: the command stays in the inbox, and is carried out by whoever holds the milestone or takes it \
         next (to look: {})",
        humantime::format_duration(wait.timeout),
        shell::command(&context.program, "show", id, None, "")
    );
    if client.live_workers().await?.is_empty() {
        text.push_str("; no worker lives now");
    }
    note(&text);
    Ok(())
}

/// Waits until all are answered, or the time is over; those that are not are left out.
pub(super) async fn answers(
    client: &Client,
    sent: Vec<SentCommand>,
    timeout: Duration,
) -> Result<HashMap<MilestoneId, Became>, Error> {
    let began = Instant::now();
    let mut pending: HashMap<MilestoneId, SentCommand> = sent
        .into_iter()
        .map(|sent| (sent.milestone().clone(), sent))
        .collect();
    let mut answers = HashMap::new();
    let mut pause = FIRST;
    loop {
        let ids: Vec<MilestoneId> = pending.keys().cloned().collect();
        for ids in ids.chunks(CHUNK) {
            let mut filter = Filter::new();
            filter.ids = ids.to_vec();
            let page = Page {
                after: None,
                limit: CHUNK,
            };
            let listed = client.runtime.list(filter, page).await?;
            let mut there: HashMap<_, _> = listed
                .records
                .into_iter()
                .map(|record| (record.id.clone(), record))
                .collect();
            for id in ids {
                let answer = match (there.remove(id), &pending[id]) {
                    (Some(record), sent) => sent.answer_in(&record),
                    // What cannot be read may still be there.
                    (None, _) if !listed.unreadable.is_empty() => None,
                    (None, _) => Some(Err(CommandError::Removed { id: id.clone() })),
                };
                if let Some(answer) = answer {
                    pending.remove(id);
                    let became = answer.map_or_else(Became::Failed, Became::Done);
                    answers.insert(id.clone(), became);
                }
            }
        }
        let left = timeout.saturating_sub(began.elapsed());
        if pending.is_empty() || left.is_zero() {
            return Ok(answers);
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LATER);
    }
}
