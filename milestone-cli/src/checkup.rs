//! What is wrong with the milestones of a collection, all in all.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};
use milestone_runtime::{
    MilestoneRecord,
    core::{
        machine::{check, due_tasks},
        record::Unreadable,
    },
    store::WorkerInfo,
};

use crate::{
    explain::{living, serving},
    ids,
    output::counted,
    style::{BAD, BOLD, DIM, GOOD, WARN},
    text::visible,
};

/// How many are named of each kind of finding; the others are counted.
const NAMED: usize = 100;

/// What a walk over a collection has found.
pub(crate) struct Checkup<'a> {
    workers: &'a [WorkerInfo],
    lacked: &'a [String],
    count: usize,
    unreadable: Findings,
    broken: Findings,
    /// By method and queue: how many wait, and one of them.
    helpless: BTreeMap<(String, String), (usize, String)>,
}

#[derive(Default)]
struct Findings {
    count: usize,
    named: Vec<(String, String)>,
}

impl Findings {
    fn add(&mut self, id: String, what: String) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push((id, what));
        }
    }
}

impl<'a> Checkup<'a> {
    pub(crate) fn new(workers: &'a [WorkerInfo], lacked: &'a [String]) -> Self {
        Self {
            workers,
            lacked,
            count: 0,
            unreadable: Findings::default(),
            broken: Findings::default(),
            helpless: BTreeMap::new(),
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn look_at(&mut self, record: &MilestoneRecord) {
        self.count += 1;
        let id = || ids::written(&record.id);
        for violation in check(record) {
            self.broken.add(id(), violation.what);
        }
        if record.state.is_terminal() {
            return;
        }
        let mut seen = Vec::new();
        for due in due_tasks(record) {
            let place = (due.method.to_owned(), due.queue.to_owned());
            if serving(&due, self.workers) == 0 && !seen.contains(&place) {
                let entry = self.helpless.entry(place.clone());
                entry.or_insert_with(|| (0, id())).0 += 1;
                seen.push(place);
            }
        }
    }

    pub(crate) fn unreadable(&mut self, unreadable: Vec<Unreadable>) {
        for one in unreadable {
            self.count += 1;
            self.unreadable.add(one.id, one.reason);
        }
    }

    /// Whether nothing was found.
    pub(crate) fn is_well(&self) -> bool {
        self.unreadable.count == 0
            && self.broken.count == 0
            && self.helpless.is_empty()
            && self.lacked.is_empty()
    }

    /// What was found, for programs.
    pub(crate) fn document(&self) -> Document {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let named = |findings: &Findings| {
            let each = findings.named.iter();
            let each = each.map(|(id, what)| Bson::from(doc! { "id": id, "what": what }));
            doc! { "count": number(findings.count), "named": each.collect::<Vec<_>>() }
        };
        let helpless = self.helpless.iter().map(|((method, queue), (count, id))| {
            Bson::from(
                doc! { "method": method, "queue": queue, "count": number(*count), "example": id },
            )
        });
        doc! {
            "milestones": number(self.count),
            "liveWorkers": number(self.workers.len()),
            "unreadable": named(&self.unreadable),
            "broken": named(&self.broken),
            "withoutWorker": helpless.collect::<Vec<_>>(),
            "missingIndexes": self.lacked.to_vec(),
            "well": self.is_well(),
        }
    }

    /// What was found, for people.
    pub(crate) fn told(&self) -> String {
        let mut text = format!(
            "{BOLD}{}{BOLD:#} looked at, {}\n",
            counted(self.count as u64, "milestone"),
            living(self.workers.len())
        );
        let mut section =
            |title: String, style: anstyle::Style, lines: Vec<String>, more: usize| {
                push!(text, "\n{style}{title}{style:#}\n");
                for line in lines {
                    push!(text, "  {line}\n");
                }
                if more > 0 {
                    push!(text, "  {DIM}… and {more} more{DIM:#}\n");
                }
            };
        let lines = |findings: &Findings| {
            let each = findings.named.iter();
            each.map(|(id, what)| format!("{BOLD}{}{BOLD:#}  {}", visible(id), visible(what)))
                .collect()
        };
        let unnamed = |findings: &Findings| findings.count - findings.named.len();
        if self.unreadable.count > 0 {
            let title = format!(
                "{} cannot be read",
                counted(self.unreadable.count as u64, "document")
            );
            section(
                title,
                BAD,
                lines(&self.unreadable),
                unnamed(&self.unreadable),
            );
        }
        if self.broken.count > 0 {
            let what = if self.broken.count == 1 {
                "invariant is"
            } else {
                "invariants are"
            };
            let title = format!("{} {what} broken", self.broken.count);
            section(title, BAD, lines(&self.broken), unnamed(&self.broken));
        }
        if !self.helpless.is_empty() {
            let lines = self.helpless.iter().map(|((method, queue), (count, id))| {
                let (verb, of) = if *count == 1 {
                    ("waits", "")
                } else {
                    ("wait", ", for example")
                };
                let count = counted(*count as u64, "milestone");
                let line =
                    format!("{count} {verb} for `{method}` in the queue `{queue}`{of}: {id}");
                visible(&line).into_owned()
            });
            let title = "no live worker has what is waited for".to_owned();
            section(title, WARN, lines.collect(), 0);
        }
        if !self.lacked.is_empty() {
            let title = "what was missing in the database is made now".to_owned();
            let lacked = self.lacked.iter();
            let lacked = lacked.map(|index| visible(index).into_owned());
            section(title, WARN, lacked.collect(), 0);
        }
        if self.is_well() {
            push!(text, "{GOOD}nothing is wrong{GOOD:#}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use milestone_runtime::core::machine::Task;

    use super::*;
    use crate::fixtures::{Story, worker};

    fn told(checkup: &Checkup<'_>) -> String {
        anstream::adapter::strip_str(&checkup.told()).to_string()
    }

    #[test]
    fn a_collection_that_is_well() {
        let workers = [worker("a", &["reserve", "charge"])];
        let mut checkup = Checkup::new(&workers, &[]);
        checkup.look_at(&Story::order().told());
        checkup.look_at(&Story::order().claim().begin(Task::to_do(0)).told());
        assert!(checkup.is_well());
        insta::assert_snapshot!(told(&checkup), @r"
        2 milestones looked at, 1 worker lives
        nothing is wrong
        ");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let workers = [worker("a", &["reserve"])];
        let lacked = ["milestone_next".to_owned()];
        let mut checkup = Checkup::new(&workers, &lacked);
        for _ in 0..2 {
            checkup.look_at(&Story::order().claim().run(0).hand_back().told());
        }
        let mut broken = Story::order().told();
        broken.due.clear();
        broken.next = None;
        checkup.look_at(&broken);
        let reason = "it has no `schema`".to_owned();
        checkup.unreadable(vec![Unreadable {
            id: "order-9".to_owned(),
            reason,
        }]);
        assert!(!checkup.is_well());
        insta::assert_snapshot!(told(&checkup), @r"
        4 milestones looked at, 1 worker lives

        1 document cannot be read
          order-9  it has no `schema`

        1 invariant is broken
          order-7  `reserve` can run, and nobody is told that it is due

        no live worker has what is waited for
          2 milestones wait for `charge` in the queue `default`, for example: order-7

        what was missing in the database is made now
          milestone_next
        ");
        insta::assert_snapshot!(crate::json::pretty(&checkup.document().into()), @r#"
        {
          "milestones": 4,
          "liveWorkers": 1,
          "unreadable": {
            "count": 1,
            "named": [
              {
                "id": "order-9",
                "what": "it has no `schema`"
              }
            ]
          },
          "broken": {
            "count": 1,
            "named": [
              {
                "id": "order-7",
                "what": "`reserve` can run, and nobody is told that it is due"
              }
            ]
          },
          "withoutWorker": [
            {
              "method": "charge",
              "queue": "default",
              "count": 2,
              "example": "order-7"
            }
          ],
          "missingIndexes": [
            "milestone_next"
          ],
          "well": false
        }
        "#);
    }
}
