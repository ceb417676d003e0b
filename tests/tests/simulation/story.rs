//! What a seed means: which workers there are, what is started when, what the client says, how the network and the processes behave.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
    time::Duration,
};

use fastrand::Rng;
use milestone_runtime::{core::record::Phase, dynamic::Action};

pub(crate) const LEASE: Duration = Duration::from_secs(2);
pub(crate) const POLL: Duration = Duration::from_millis(500);
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Longer than any body takes that is not frozen.
pub(crate) const SETTLE: Duration = Duration::from_secs(4);

pub(crate) struct Story {
    pub(crate) seed: u64,
    pub(crate) workers: Vec<WorkerPlan>,
    pub(crate) milestones: Vec<MilestonePlan>,
    /// How long things fail.
    pub(crate) chaos: Duration,
    pub(crate) faults: Faults,
    /// Whether nothing goes wrong but that the database is away for a while.
    only_outage: bool,
    /// Whether something kills whoever runs it.
    has_killer: bool,
}

pub(crate) struct WorkerPlan {
    pub(crate) places: usize,
    /// Whether it has all methods, or only those that need no luck.
    pub(crate) all_methods: bool,
    pub(crate) manner: Manner,
    /// What befalls the process, one after the other: after that wait.
    pub(crate) blows: Vec<(Duration, Blow)>,
}

/// How a process works.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// All the time.
    Spawns,
    /// One pass after the other.
    Passes,
    /// Until it is told to stop, as a `main` does; told twice, it does not wait for the end of the grace period.
    Until { twice: bool },
}

/// What befalls a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blow {
    /// Stopped for so long, as by SIGSTOP.
    Freeze(Duration),
    /// Killed, and another one started so much later.
    Kill(Duration),
    /// Shut down in order, and another one started so much later.
    Shutdown(Duration),
    /// Cut off from the database for so long.
    Cut(Duration),
}

pub(crate) struct MilestonePlan {
    pub(crate) id: String,
    pub(crate) graph: Action,
    pub(crate) at: Duration,
    /// How long it may take.
    pub(crate) deadline: Option<Duration>,
    pub(crate) commands: Vec<(Duration, Said)>,
}

/// What the client says at some time, whatever the milestone is at then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    Cancel,
    Pause,
    Resume,
    Retry,
    Resolve,
    Waive,
}

/// How often a call goes wrong, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost_request: u32,
    pub(crate) lost_reply: u32,
    pub(crate) late: u32,
    pub(crate) copied: u32,
    pub(crate) short_delay: u32,
    pub(crate) long_delay: u32,
    pub(crate) unknown_item: u32,
    /// When the database is away for all, and for how long.
    pub(crate) outage: Option<(Duration, Duration)>,
    pub(crate) hints: bool,
}

impl Story {
    /// Whether no attempt may be taken for abandoned. Either there is one worker, which neither freezes nor ends: whatever becomes of its
    /// calls, nobody else can take what it holds. Or nothing happens but that the database is away, for all.
    pub(crate) fn is_innocent(&self) -> bool {
        if self.has_killer {
            return false;
        }
        if let [worker] = &self.workers[..] {
            let mut blows = worker.blows.iter();
            return blows.all(|(_, blow)| matches!(blow, Blow::Cut(_)));
        }
        self.only_outage
    }

    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x005e_ed00_0000);
        let chaos = millis(&mut rng, 6_000..14_000);
        let mut workers: Vec<WorkerPlan> = (0..rng.usize(1..=3))
            .map(|index| worker(&mut rng, index, chaos))
            .collect();
        let mut has_killer = false;
        let milestones = (0..rng.usize(1..=4))
            .map(|index| milestone(&mut rng, index, chaos, &mut has_killer))
            .collect();
        let mut faults = faults(&mut rng, chaos);
        let only_outage = one_in(&mut rng, 6);
        if only_outage {
            for worker in &mut workers {
                worker.blows.clear();
            }
            let at = chaos.mul_f64(0.2 + rng.f64() * 0.4);
            faults = Faults {
                short_delay: faults.short_delay,
                copied: faults.copied,
                outage: Some((at, millis(&mut rng, 500..7_000))),
                hints: faults.hints,
                ..Faults::default()
            };
        }
        Self {
            seed,
            workers,
            milestones,
            chaos,
            faults,
            only_outage,
            has_killer,
        }
    }
}

fn millis(rng: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

fn one_in(rng: &mut Rng, times: u32) -> bool {
    rng.u32(0..times) == 0
}

fn faults(rng: &mut Rng, chaos: Duration) -> Faults {
    let mut rate = |times: u32, most: u32| {
        if one_in(rng, times) {
            rng.u32(1..=most)
        } else {
            0
        }
    };
    let mut faults = Faults {
        lost_request: rate(2, 120),
        lost_reply: rate(2, 200),
        late: rate(3, 80),
        copied: rate(2, 200),
        short_delay: rate(2, 700),
        long_delay: rate(3, 60),
        unknown_item: rate(3, 200),
        ..Faults::default()
    };
    faults.hints = rng.bool();
    if one_in(rng, 3) {
        let at = chaos.mul_f64(rng.f64() * 0.7);
        faults.outage = Some((at, millis(rng, 100..6_000)));
    }
    faults
}

fn worker(rng: &mut Rng, index: usize, chaos: Duration) -> WorkerPlan {
    let mut blows = Vec::new();
    for _ in 0..rng.usize(0..=3) {
        let wait = chaos.mul_f64(rng.f64() * 0.5);
        let long = LEASE.mul_f64(0.3 + rng.f64() * 2.5);
        let blow = match rng.u32(0..11) {
            0..=3 => Blow::Freeze(long),
            4..=6 => Blow::Kill(long),
            7..=8 => Blow::Shutdown(long / 4),
            _ => Blow::Cut(long),
        };
        blows.push((wait, blow));
    }
    WorkerPlan {
        places: rng.usize(1..=3),
        all_methods: index == 0 || !one_in(rng, 4),
        manner: match (one_in(rng, 5), rng.bool(), one_in(rng, 3)) {
            (true, ..) => Manner::Passes,
            (_, true, twice) => Manner::Until { twice },
            _ => Manner::Spawns,
        },
        blows,
    }
}

fn milestone(rng: &mut Rng, index: usize, chaos: Duration, has_killer: &mut bool) -> MilestonePlan {
    let commands = if one_in(rng, 2) { rng.usize(1..=3) } else { 0 };
    let said = |rng: &mut Rng| match rng.u32(0..12) {
        0..=2 => Said::Cancel,
        3..=4 => Said::Pause,
        5..=6 => Said::Resume,
        7..=8 => Said::Retry,
        9..=10 => Said::Resolve,
        _ => Said::Waive,
    };
    let commands = (0..commands)
        .map(|_| (chaos.mul_f64(rng.f64()), said(rng)))
        .collect();
    let saga = one_in(rng, 2);
    // Of its actions, which one kills whoever runs it.
    let killer = one_in(rng, 10).then(|| rng.usize(1..=3));
    let mut names = 0;
    let mut action = |rng: &mut Rng| {
        names += 1;
        let method = match killer {
            Some(killer) if killer == names => {
                *has_killer = true;
                "killer"
            }
            _ => method(rng, saga),
        };
        Action::new(format!("a{names}")).method(method)
    };
    let graph = match rng.u32(0..6) {
        0 => action(rng),
        1 | 2 => {
            let last = action(rng);
            (0..rng.usize(1..=3)).fold(last, |below, _| action(rng).next([below]))
        }
        3 => {
            let branches: Vec<Action> = (0..rng.usize(2..=3)).map(|_| action(rng)).collect();
            action(rng).next(branches).done(action(rng))
        }
        4 => {
            let branches: Vec<Action> = (0..rng.usize(2..=4)).map(|_| action(rng)).collect();
            Action::fork("fork").next(branches)
        }
        _ => {
            let left = action(rng).next([action(rng)]);
            action(rng).next([left, action(rng)]).done(action(rng))
        }
    };
    MilestonePlan {
        id: format!("m{index}"),
        graph,
        at: chaos.mul_f64(rng.f64() * 0.7),
        deadline: one_in(rng, 5).then(|| millis(rng, 300..9_000)),
        commands,
    }
}

fn method(rng: &mut Rng, saga: bool) -> &'static str {
    let methods = if saga {
        [
            "idem-u", "plain-u", "plain-ru", "idem", "idem-u", "plain-uv", "plain-v",
        ]
    } else {
        [
            "idem", "plain", "plain-r", "timed", "plain-t", "plain-v", "plain-tv",
        ]
    };
    methods[rng.usize(0..methods.len())]
}

/// How a body behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    pub(crate) end: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Succeeds,
    /// Before it took effect.
    Fails,
    /// After it took effect; only what may run again does that.
    FailsAfter,
    /// For good, before it took effect.
    Fatal,
    PanicsBefore,
    PanicsAfter,
    /// It does not end.
    Hangs,
    /// The process ends at once.
    Kills,
}

impl Story {
    pub(crate) fn behaviour(
        &self,
        id: &str,
        action: &str,
        phase: Phase,
        attempt: i64,
        repeatable: bool,
    ) -> Behaviour {
        let mut rng = self.luck(id, action, phase, attempt);
        let length = |rng: &mut Rng| match rng.u32(0..12) {
            0..=2 => Duration::ZERO,
            3..=9 => millis(rng, 1..400),
            _ => millis(rng, 400..1_900),
        };
        let (before, after) = (length(&mut rng), length(&mut rng));
        // Luck turns after a few attempts, so that it ends.
        let end = match rng.u32(0..100) {
            _ if attempt > 3 => Ending::Succeeds,
            0..=11 => Ending::Fails,
            12..=17 if repeatable => Ending::FailsAfter,
            18..=20 => Ending::Fatal,
            21 => Ending::PanicsBefore,
            22 => Ending::PanicsAfter,
            23..=35 if phase == Phase::Verify => Ending::Hangs,
            _ => Ending::Succeeds,
        };
        Behaviour { before, after, end }
    }

    /// How a body behaves that kills its process: how often it does, the seed says. Seven in a row are too many.
    pub(crate) fn killing(&self, id: &str, action: &str, attempt: i64) -> Behaviour {
        let kills = self.luck(id, action, Phase::Do, 0).i64(1..=9);
        let mut behaviour = self.behaviour(id, action, Phase::Do, attempt, true);
        behaviour.end = if attempt <= kills {
            Ending::Kills
        } else {
            Ending::Succeeds
        };
        behaviour
    }

    fn luck(&self, id: &str, action: &str, phase: Phase, attempt: i64) -> Rng {
        let phase = Phase::ALL.iter().position(|other| *other == phase);
        let mut hasher = DefaultHasher::new();
        (self.seed, id, action, phase, attempt).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }
}
