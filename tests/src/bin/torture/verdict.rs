//! What is left in the end, and what is wrong with it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::PoisonError,
};

use milestone_runtime::{
    Filter, Page,
    core::record::{ActionKind, ActionState, MilestoneRecord, Phase},
};
use milestone_tests::{
    journal::{self, What},
    verdict::{Broken, Problem, by_milestone, judge},
};

use crate::{stage::Stage, starter::Started};

/// How many problems are told one by one.
const TOLD: usize = 30;

#[derive(Default)]
pub(crate) struct Verdict {
    milestones: usize,
    actions: usize,
    attempts: usize,
    undone: usize,
    abandoned: usize,
    resolved: usize,
    /// Those that were started and are not there, or have not ended as their kind does.
    lost: Vec<String>,
    problems: Vec<Problem>,
    bank: Option<String>,
    panics: Vec<String>,
}

impl Verdict {
    fn count(&self, broken: Broken) -> usize {
        let of = self
            .problems
            .iter()
            .filter(|problem| problem.broken == broken);
        of.count()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.lost.is_empty()
            && self.problems.is_empty()
            && self.bank.is_none()
            && self.panics.is_empty()
            && self.milestones > 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "work       {} milestones, {} actions completed, {} undone, {} attempts begun, {} abandoned, {} resolved by an operator",
            self.milestones,
            self.actions,
            self.undone,
            self.attempts,
            self.abandoned,
            self.resolved
        )?;
        writeln!(
            f,
            "verdict    lost {}, doubly completed {}, plain actions started twice {}",
            self.lost.len(),
            self.count(Broken::CompletedTwice),
            self.count(Broken::PlainTwice)
        )?;
        writeln!(
            f,
            "           broken invariants {}, wrong order {}, untrue {}, panics {}",
            self.count(Broken::Invariant),
            self.count(Broken::Order),
            self.count(Broken::Untrue),
            self.panics.len()
        )?;
        let bank = self.bank.as_deref();
        write!(f, "bank       {}", bank.unwrap_or("every account is exact"))?;
        for lost in self.lost.iter().take(TOLD) {
            write!(f, "\nerror      {lost}")?;
        }
        for problem in self.problems.iter().take(TOLD) {
            let Problem { id, broken, what } = problem;
            write!(f, "\nerror      {id} ({broken:?}): {what}")?;
        }
        for panic in self.panics.iter().take(TOLD) {
            write!(f, "\nerror      {panic}")?;
        }
        Ok(())
    }
}

pub(crate) async fn of(stage: &Stage, started: &Started) -> Verdict {
    let (records, unreadable) = all(stage).await;
    let entries = journal::read(&stage.program.journal);
    let mut verdict = Verdict {
        milestones: records.len(),
        attempts: entries
            .iter()
            .filter(|entry| entry.what == What::Begun)
            .count(),
        panics: stage.panics(),
        lost: unreadable,
        ..Verdict::default()
    };
    let entries = by_milestone(entries);
    let allowed = {
        let allowed = stage.allowed.lock();
        HashMap::clone(&allowed.unwrap_or_else(PoisonError::into_inner))
    };
    for (id, kind) in &started.milestones {
        match records.get(id) {
            None => verdict.lost.push(format!("{id} is not there")),
            Some(record) if record.state != kind.ends() => {
                let (kind, is) = (kind.name(), record.state);
                verdict.lost.push(format!("{id}, a {kind}, is {is}"));
            }
            Some(_) => {}
        }
    }
    for (id, record) in &records {
        let own = entries.get(id).map_or(&[][..], Vec::as_slice);
        let may = allowed.get(id).copied().unwrap_or(1);
        verdict.problems.extend(judge(record, own, |_| may));
        if !started.milestones.contains_key(id) {
            verdict.lost.push(format!("{id} was never started"));
        }
        let completed = record.actions.iter().filter(|action| {
            action.kind == ActionKind::Action && action.state == ActionState::Completed
        });
        verdict.actions += completed.count();
        let undone = record
            .report
            .iter()
            .filter(|attempt| attempt.phase == Phase::Undo && attempt.success == Some(true));
        verdict.undone += undone.count();
        let abandoned = record
            .report
            .iter()
            .filter(|attempt| attempt.kind.is_some());
        verdict.abandoned += abandoned.count();
        verdict.resolved += record.answers.iter().filter(|answer| answer.done).count();
    }
    verdict.bank = match stage.bank.balances().await {
        Err(error) => Some(format!("it cannot be read: {error}")),
        Ok(balances) if balances == started.balances => None,
        Ok(balances) => {
            let wrong = balances.iter().filter_map(|(account, holds)| {
                let expected = started.balances.get(account).copied().unwrap_or(0);
                (*holds != expected).then(|| format!("{account} holds {holds}, not {expected}"))
            });
            Some(wrong.collect::<Vec<_>>().join("; "))
        }
    };
    verdict
}

/// All milestones, and what cannot be read.
async fn all(stage: &Stage) -> (BTreeMap<String, MilestoneRecord>, Vec<String>) {
    let (mut records, mut unreadable) = (BTreeMap::new(), Vec::new());
    let mut page = Page {
        limit: 500,
        ..Page::default()
    };
    loop {
        let listed = stage.client.list(Filter::new(), page.clone()).await;
        let listed = listed.expect("the database answers");
        unreadable.extend(listed.unreadable.iter().map(ToString::to_string));
        let own = listed.records.into_iter();
        records.extend(own.map(|record| (record.id.to_string(), record)));
        match listed.next {
            Some(next) => page.after = Some(next),
            None => return (records, unreadable),
        }
    }
}
