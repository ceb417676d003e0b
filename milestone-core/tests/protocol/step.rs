//! The names of all that can happen, for the search and for people.

use std::fmt;

use milestone_core::machine::Task;

use crate::{
    state::{Copy, Outcome},
    worker::name_of,
};

/// Something that happens. Workers are numbered from 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Born(usize),
    InsertReplyLost(usize),
    InsertedAgain(usize),
    Looks(usize),
    ClaimArrives(usize),
    ClaimRequestLost(usize),
    ClaimReplyLost(usize),
    ClaimReadBack(usize),
    ClaimReadBackLost(usize),
    Claimed(usize),
    CommitArrives(usize),
    CommitDelivered {
        worker: usize,
        twice: bool,
    },
    CommitRequestLost(usize),
    CommitReplyLost(usize),
    CommitReadBack(usize),
    CommitReadBackLost(usize),
    Committed(usize, Outcome),
    CommitAgain(usize),
    RenewalSent(usize),
    RenewalArrives {
        worker: usize,
        twice: bool,
    },
    RenewalLost(usize),
    Renewed {
        worker: usize,
        lost: bool,
    },
    MailRead(usize),
    MailDelivered(usize),
    BodyEnds {
        worker: usize,
        task: Task,
        fails: bool,
    },
    GivenUpBodyEnds(usize, Task),
    Plans(usize),
    Crashes(usize),
    ToldToStop(usize),
    CutOff(usize),
    CopyArrives(Copy),
    TimePasses {
        freezes: bool,
    },
    CommandSent(usize),
    CommandSentAgain(usize),
}

impl Step {
    /// Whether it needs no fault and nobody outside: what happens by itself, sooner or later.
    pub(crate) fn is_calm(&self) -> bool {
        !matches!(
            self,
            Self::InsertReplyLost(_)
                | Self::ClaimRequestLost(_)
                | Self::ClaimReplyLost(_)
                | Self::ClaimReadBackLost(_)
                | Self::CommitDelivered { twice: true, .. }
                | Self::CommitRequestLost(_)
                | Self::CommitReplyLost(_)
                | Self::CommitReadBackLost(_)
                | Self::RenewalArrives { twice: true, .. }
                | Self::RenewalLost(_)
                | Self::BodyEnds { fails: true, .. }
                | Self::Crashes(_)
                | Self::ToldToStop(_)
                | Self::CopyArrives(_)
                | Self::TimePasses { freezes: true }
                | Self::CommandSent(_)
                | Self::CommandSentAgain(_)
        )
    }
}

impl fmt::Display for Step {
    #[expect(clippy::too_many_lines, reason = "a line for each step")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worker = |at: &usize| format!("worker {}", at + 1);
        match self {
            Self::Born(at) => write!(
                f,
                "{} learns that what it has started is stored",
                worker(at)
            ),
            Self::InsertReplyLost(at) => {
                write!(f, "the reply to the insert of {} is lost", worker(at))
            }
            Self::InsertedAgain(at) => write!(f, "{} inserts again", worker(at)),
            Self::Looks(at) => write!(
                f,
                "{} sees that the milestone is due, and sends a claim",
                worker(at)
            ),
            Self::ClaimArrives(at) => write!(f, "the claim of {} is carried out", worker(at)),
            Self::ClaimRequestLost(at) => write!(
                f,
                "the claim of {} is held up, and it waits no longer",
                worker(at)
            ),
            Self::ClaimReplyLost(at) => {
                write!(f, "the reply to the claim of {} is lost", worker(at))
            }
            Self::ClaimReadBack(at) => {
                write!(f, "{} reads whether its claim was carried out", worker(at))
            }
            Self::ClaimReadBackLost(at) => write!(
                f,
                "{} cannot read whether its claim was carried out, and forgets it",
                worker(at)
            ),
            Self::Claimed(at) => write!(
                f,
                "{} learns that the milestone is its own, and goes to work",
                worker(at)
            ),
            Self::CommitArrives(at)
            | Self::CommitDelivered {
                worker: at,
                twice: false,
            } => {
                write!(f, "the commit of {} is carried out", worker(at))
            }
            Self::CommitDelivered { worker: at, .. } => {
                write!(
                    f,
                    "the commit of {} is carried out, and the network keeps a copy",
                    worker(at)
                )
            }
            Self::CommitRequestLost(at) => write!(
                f,
                "the commit of {} is held up, and it waits no longer",
                worker(at)
            ),
            Self::CommitReplyLost(at) => {
                write!(f, "the reply to the commit of {} is lost", worker(at))
            }
            Self::CommitReadBack(at) => {
                write!(f, "{} reads whether its commit was carried out", worker(at))
            }
            Self::CommitReadBackLost(at) => write!(
                f,
                "{} cannot read whether its commit was carried out",
                worker(at)
            ),
            Self::Committed(at, outcome) => {
                let what = match outcome {
                    Outcome::Done => "its commit is done",
                    Outcome::Lost => "its lease is lost",
                    Outcome::Mail(_) => "a command has come that its commit does not know of",
                    Outcome::Unknown => "nobody knows what became of its commit",
                };
                write!(f, "{} learns that {what}", worker(at))
            }
            Self::CommitAgain(at) => write!(f, "{} sends its commit again", worker(at)),
            Self::RenewalSent(at) => write!(f, "{} sends a renewal", worker(at)),
            Self::RenewalArrives { worker: at, twice } => {
                let twice = if *twice {
                    ", and the network keeps a copy"
                } else {
                    ""
                };
                write!(f, "the renewal of {} is carried out{twice}", worker(at))
            }
            Self::RenewalLost(at) => write!(f, "the renewal of {} fails", worker(at)),
            Self::Renewed { worker: at, lost } => {
                let what = if *lost { "lost" } else { "renewed" };
                write!(f, "{} learns that its lease is {what}", worker(at))
            }
            Self::MailRead(at) => write!(f, "{} reads the milestone for its mail", worker(at)),
            Self::MailDelivered(at) => write!(f, "the mail reaches the engine of {}", worker(at)),
            Self::BodyEnds {
                worker: at,
                task,
                fails,
            } => {
                let how = if *fails { "fails" } else { "succeeds" };
                write!(f, "{} of {} {how}", name_of(*task), worker(at))
            }
            Self::GivenUpBodyEnds(at, task) => {
                write!(f, "{}, given up by {}, ends", name_of(*task), worker(at))
            }
            Self::Plans(at) => write!(f, "{} looks at what is due now", worker(at)),
            Self::Crashes(at) => write!(f, "{} crashes", worker(at)),
            Self::ToldToStop(at) => write!(f, "{} is told to shut down", worker(at)),
            Self::CutOff(at) => write!(f, "the grace period of {} is over", worker(at)),
            Self::CopyArrives(copy) => match copy {
                Copy::Commit(_) => write!(f, "a late copy of a commit arrives"),
                Copy::Claim(_) => write!(f, "a late copy of a claim arrives"),
                Copy::Renewal { .. } => write!(f, "a late copy of a renewal arrives"),
            },
            Self::TimePasses { freezes: false } => write!(f, "time passes"),
            Self::TimePasses { freezes: true } => write!(
                f,
                "time passes, and the lease of a worker that sleeps is over"
            ),
            Self::CommandSent(which) => write!(f, "the operator sends command {which}"),
            Self::CommandSentAgain(which) => write!(f, "the operator sends command {which} again"),
        }
    }
}
