//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, builder::PossibleValue};
use milestone_runtime::{MilestoneId, Status};

use crate::{exit, ids, time::Moment};

/// Looks at milestones, and commands them.
#[derive(Debug, Parser)]
#[command(
    name = "milestone",
    version,
    after_help = exit::CODES,
    after_long_help = format!("{EXAMPLES}\n\n{}", exit::CODES),
    max_term_width = 110,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: ColorArg,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  export MILESTONE_URI=mongodb://localhost:27017/bank
  milestone list --state failed,in_doubt --created-after 24h
  milestone show transfer-7
  milestone resolve transfer-7 charge --applied --output '{\"receipt\": \"A-17\"}'
  milestone retry --type Transfer --state failed
  milestone doctor && echo all is well

An id of 24 hexadecimal digits is an ObjectId, if there is such a milestone; '\"..\"' is a string for sure, '{\"$oid\": \"..\"}' an ObjectId.";

/// Where the milestones are.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The database: `mongodb://host/database`, `mongodb+srv://host/database` or `sqlite:path/to/file.db`
    #[arg(
        long,
        global = true,
        env = "MILESTONE_URI",
        hide_env_values = true,
        value_name = "URI",
        help_heading = "Where"
    )]
    pub(crate) uri: Option<String>,

    /// The collection
    #[arg(
        long,
        global = true,
        env = "MILESTONE_COLLECTION",
        default_value = "_milestones_",
        value_name = "NAME",
        help_heading = "Where"
    )]
    pub(crate) collection: String,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    /// On a terminal.
    #[default]
    #[value(help = "On a terminal, unless NO_COLOR is set")]
    Auto,
    /// Also into a pipe
    Always,
    /// Not at all
    Never,
}

impl ColorArg {
    /// For all that is written from now on.
    pub(crate) fn apply(self) {
        let choice = match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List milestones, the highest id first: of ids that were made for you, the newest
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  milestone list --type Transfer --state failed
  milestone list --state waiting,in_doubt,undoing --label customer=7
  milestone list --created-after 2026-01-01 --created-before 2h --limit 0 --json

FAILURES counts the attempts in a row that have failed, of the action that struggles most. ACTIONS are those that are complete, of all."
    )]
    List(ListArgs),

    /// Show one milestone: its state, why it waits and what to do, its graph, its attempts
    #[command(after_help = "\
Examples:
  milestone show transfer-7
  milestone show transfer-7 --full      # with stack traces, all attempts, the whole graph, values
  milestone show transfer-7 --json | jq .actions")]
    Show(ShowArgs),

    /// Go on from what failed
    #[command(after_help = "\
Of a milestone that is `failed`, what failed is run again; of one that is `undoing`, what could not be undone is tried again. With a \
filter that names no state, those that are `failed` are meant.

Examples:
  milestone retry transfer-7
  milestone retry --type Transfer --state failed --created-after 24h")]
    Retry(ManyArgs),

    /// Cancel: nothing new begins, what runs is asked to stop, what was done is undone
    #[command(after_help = "\
Examples:
  milestone cancel transfer-7 --reason 'the customer changed her mind'
  milestone cancel --type Report --created-before 7d --yes")]
    Cancel(ReasonArgs),

    /// Pause: what runs ends, and nothing new begins until it is resumed
    #[command(after_help = "\
Examples:
  milestone pause transfer-7 --reason 'the bank is closed'
  milestone pause --type Transfer --yes")]
    Pause(ReasonArgs),

    /// Go on after a pause
    #[command(after_help = "\
Examples:
  milestone resume transfer-7
  milestone resume --type Transfer --on-hold --yes")]
    Resume(ManyArgs),

    /// Say whether an action in doubt took effect
    #[command(after_help = "\
Look where the action takes effect (the payment provider, the mail server, ..), then say what you found. `milestone show` \
names the action, and tells from when on it can no longer take effect: before that, `--not-applied` is refused unless \
it is forced.

Examples:
  milestone resolve transfer-7 charge --applied --output '{\"receipt\": \"A-17\"}'
  milestone resolve transfer-7 charge --not-applied       # it is run again")]
    Resolve(ResolveArgs),

    /// Say that an action whose undo has been tried, and has not succeeded, need not be undone
    #[command(after_help = "\
Examples:
  milestone waive transfer-7 debit")]
    Waive(WaiveArgs),

    /// Remove milestones from the database, whatever their state
    #[command(after_help = "\
Nothing is undone, and nothing is left of it. A worker that runs it finds out at its next write.

Examples:
  milestone remove transfer-7
  milestone remove transfer-7 transfer-8 --yes")]
    Remove(RemoveArgs),

    /// Count milestones by type and state, and tell what needs somebody
    Stats(JsonArgs),

    /// List the workers
    #[command(after_help = "\
A worker tells once a minute that it lives. One that was killed is shown as alive until it has missed that by half a minute.")]
    Workers(JsonArgs),

    /// Walk the whole collection and check everything that must be true of it
    #[command(after_help = "\
It names documents that cannot be read and those that break an invariant, counts milestones that wait for a method that no \
live worker has, and tells which indexes were missing. Nothing is repaired but missing indexes, which any start of a worker makes, too. A \
worker tells within a minute of a method that it was given while it ran. It exits with 6 if it has found something.")]
    Doctor(JsonArgs),

    /// Draw a graph for Graphviz or Mermaid
    #[command(after_help = "\
Examples:
  milestone graph transfer-7 | dot -Tsvg > transfer.svg
  milestone graph --type Transfer --format mermaid      # without states")]
    Graph(GraphArgs),
}

/// Which milestones.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which")]
pub(crate) struct FilterArgs {
    /// Of this type
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) kind: Option<String>,

    /// In one of these states
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',', action = ArgAction::Append)]
    pub(crate) states: Vec<StateArg>,

    /// With this label; several must all be there
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label, action = ArgAction::Append)]
    pub(crate) labels: Vec<(String, String)>,

    /// Started then or later: RFC 3339, a day, or how long ago (2h)
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) created_after: Option<Moment>,

    /// Started before then
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) created_before: Option<Moment>,

    /// On hold: paused, or parked
    #[arg(long)]
    pub(crate) on_hold: bool,
}

impl FilterArgs {
    /// Whether it names anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.kind.is_none()
            && self.states.is_empty()
            && self.labels.is_empty()
            && self.created_after.is_none()
            && self.created_before.is_none()
            && !self.on_hold
    }
}

/// A state, by the name that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateArg(pub(crate) Status);

impl ValueEnum for StateArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [StateArg; Status::ALL.len()] = {
            let mut all = [StateArg(Status::Pending); Status::ALL.len()];
            let mut index = 0;
            while index < all.len() {
                all[index] = StateArg(Status::ALL[index]);
                index += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.as_str());
        Some(if self.0 == Status::InDoubt {
            value.alias("in-doubt")
        } else {
            value
        })
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "a label is NAME=VALUE".to_owned())
}

/// An id, and what it may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdArg {
    pub(crate) text: String,
    pub(crate) meanings: Vec<MilestoneId>,
}

fn id(text: &str) -> Result<IdArg, String> {
    Ok(IdArg {
        meanings: ids::meanings(text)?,
        text: text.to_owned(),
    })
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// How many at the most; 0 is all
    #[arg(long, short = 'n', default_value_t = 50, value_name = "COUNT")]
    pub(crate) limit: usize,

    /// Only those behind this one: the next page
    #[arg(long, value_name = "ID", value_parser = id)]
    pub(crate) after: Option<IdArg>,

    /// The documents as relaxed extended JSON, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The milestone
    #[arg(value_name = "ID", value_parser = id)]
    pub(crate) id: IdArg,

    /// Everything: stack traces, all attempts, the whole graph, parameters and outputs
    #[arg(long)]
    pub(crate) full: bool,

    /// The document as relaxed extended JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How an answer is waited for and told.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// How long to wait until a worker has answered
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,

    /// What became of it as JSON, one line a milestone
    #[arg(long)]
    pub(crate) json: bool,
}

/// One milestone, several, or all that a filter finds.
#[derive(Debug, Args)]
pub(crate) struct ManyArgs {
    /// The milestones
    #[arg(value_name = "ID", value_parser = id, conflicts_with_all = ["kind", "states", "labels", "created_after", "created_before", "on_hold", "all"])]
    pub(crate) ids: Vec<IdArg>,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// All milestones whose state accepts it
    #[arg(long, help_heading = "Which")]
    pub(crate) all: bool,

    /// Do not ask, however many there are
    #[arg(long, short)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReasonArgs {
    #[command(flatten)]
    pub(crate) many: ManyArgs,

    /// Why, for people
    #[arg(long, short, default_value = "no reason given", value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The milestone
    #[arg(value_name = "ID", value_parser = id)]
    pub(crate) id: IdArg,

    /// The name of the action
    pub(crate) action: String,

    /// It took effect
    #[arg(long, required_unless_present = "not_applied")]
    pub(crate) applied: bool,

    /// It did not, and no longer can: it is run again
    #[arg(long, conflicts_with_all = ["applied", "output", "output_file"])]
    pub(crate) not_applied: bool,

    /// What it gave, as JSON or extended JSON: what the actions after it are given. `null`, if it gives nothing
    #[arg(
        long,
        value_name = "JSON",
        conflicts_with = "output_file",
        required_unless_present_any = ["output_file", "not_applied"]
    )]
    pub(crate) output: Option<String>,

    /// The same from a file, or from the standard input (`-`)
    #[arg(long, value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,

    /// Also while the old attempt may still take effect: you know that it cannot
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WaiveArgs {
    /// The milestone
    #[arg(value_name = "ID", value_parser = id)]
    pub(crate) id: IdArg,

    /// The name of the action
    pub(crate) action: String,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The milestones
    #[arg(value_name = "ID", value_parser = id, required = true)]
    pub(crate) ids: Vec<IdArg>,

    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// What became of it as JSON, one line a milestone
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct JsonArgs {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// The milestone
    #[arg(value_name = "ID", value_parser = id, required_unless_present = "kind")]
    pub(crate) id: Option<IdArg>,

    /// The graph of the first milestone of this type that `list` shows, without states
    #[arg(long = "type", value_name = "NAME", conflicts_with = "id")]
    pub(crate) kind: Option<String>,

    /// The language
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: FormatArg,
}

/// The language of a drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// Graphviz
    #[default]
    Dot,
    /// Mermaid
    Mermaid,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn states_are_named_as_they_are_stored() {
        for status in Status::ALL {
            assert_eq!(
                StateArg::from_str(status.as_str(), false),
                Ok(StateArg(status))
            );
        }
        assert_eq!(
            StateArg::from_str("in-doubt", false),
            Ok(StateArg(Status::InDoubt))
        );
    }
}
