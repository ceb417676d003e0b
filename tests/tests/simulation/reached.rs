//! How often seeds come to what is rare: what never happens is not checked, either.

use milestone_runtime::core::record::{Order, Phase};

use super::world::World;

/// How often it came to that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Bodies of verifies.
    verifies: usize,
    /// Verifies that have settled a doubt.
    verdicts: usize,
    /// Deadlines that have ended a milestone.
    deadlines: usize,
    /// Bodies of suspects.
    suspects: usize,
    /// Milestones that were parked.
    parked: usize,
    /// Late results that were sent, and those that were accepted.
    late: usize,
    late_accepted: usize,
    /// Shutdowns that have ended.
    shutdowns: usize,
}

impl Reached {
    pub(crate) fn of(world: &World) -> Self {
        let (records, runs) = (world.court.records(), world.ledger.runs());
        let late: Vec<_> = world
            .court
            .late()
            .into_iter()
            .filter(|(_, command)| matches!(command.order, Order::Resolve { .. }))
            .collect();
        let accepted = late.iter().filter(|(id, command)| {
            let record = records.iter().find(|record| record.id == *id);
            record.is_some_and(|record| {
                let mut answers = record.answers.iter();
                answers.any(|answer| answer.id == command.id && answer.done)
            })
        });
        let verdicts = records.iter().flat_map(|record| &record.report);
        Self {
            verifies: runs.iter().filter(|run| run.phase == Phase::Verify).count(),
            verdicts: verdicts
                .filter(|attempt| attempt.phase == Phase::Verify && attempt.success == Some(true))
                .count(),
            deadlines: records
                .iter()
                .filter_map(|record| record.unwind.as_ref())
                .filter(|unwind| unwind.by.is_none() && unwind.reason.contains("deadline"))
                .count(),
            suspects: runs.iter().filter(|run| run.suspect).count(),
            parked: world.court.parked(),
            late_accepted: accepted.count(),
            late: late.len(),
            shutdowns: world.ledger.shutdowns(),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.verifies += other.verifies;
        self.verdicts += other.verdicts;
        self.deadlines += other.deadlines;
        self.suspects += other.suspects;
        self.parked += other.parked;
        self.late += other.late;
        self.late_accepted += other.late_accepted;
        self.shutdowns += other.shutdowns;
    }

    pub(crate) fn check(&self) {
        for (what, times) in [
            ("verdicts", self.verdicts),
            ("deadlines", self.deadlines),
            ("suspects", self.suspects),
            ("parked milestones", self.parked),
            ("accepted late results", self.late_accepted),
            ("shutdowns", self.shutdowns),
        ] {
            assert!(times >= 10, "there are but {times} {what}: {self:?}");
        }
    }
}
