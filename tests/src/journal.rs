//! What the bodies of actions did, written where a killed process leaves it: a file that all processes of a test append to.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use milestone_runtime::{action::Context, core::record::Phase};

/// A file of entries.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

/// One entry: an attempt has begun, or has ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The milestone.
    pub milestone: String,
    /// The name of the action in it.
    pub action: String,
    /// Whether it was to do the action or to undo it.
    pub phase: Phase,
    /// The number of the attempt.
    pub attempt: i64,
    /// The epoch in which it began.
    pub epoch: i64,
    /// What is told of it.
    pub what: What,
    /// What no other entry has that tells of another run: the output of an attempt that has ended well.
    pub mark: String,
    /// The time of this machine, in milliseconds since 1970.
    pub at: u64,
}

/// What an entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The body has begun.
    Begun,
    /// The body has had its effect and is about to say so.
    Ended,
    /// The body has seen that it should stop.
    Cancelled,
}

impl Journal {
    /// Opens the file, which is made if it is missing.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self { file })
    }

    /// Notes that a body begins, and gives the mark of its run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&self, cx: &Context) -> io::Result<String> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{run}", std::process::id());
        self.note(cx, What::Begun, &mark)?;
        Ok(mark)
    }

    /// Notes something of a run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&self, cx: &Context, what: What, mark: &str) -> io::Result<()> {
        let (id, action, attempt) = (cx.milestone_id(), cx.action(), cx.attempt());
        let (phase, epoch, what, at) = (phase_name(cx.phase()), cx.epoch(), what.name(), now());
        let line = format!("{id} {action} {phase} {attempt} {epoch} {what} {mark} {at}\n");
        // One write to a file that is open for appending: lines of several processes do not mix.
        (&self.file).write_all(line.as_bytes())
    }
}

/// All entries, the oldest first.
///
/// # Panics
/// If the file holds something else.
pub fn read(path: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| parse(line).unwrap_or_else(|| panic!("`{line}` is no entry")))
        .collect()
}

/// The time of this machine, in milliseconds since 1970.
pub fn now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    Some(Entry {
        milestone: words.next()?.to_owned(),
        action: words.next()?.to_owned(),
        phase: [Phase::Do, Phase::Undo].into_iter().find({
            let name = words.next()?;
            move |phase| phase_name(*phase) == name
        })?,
        attempt: words.next()?.parse().ok()?,
        epoch: words.next()?.parse().ok()?,
        what: [What::Begun, What::Ended, What::Cancelled]
            .into_iter()
            .find({
                let name = words.next()?;
                move |what| what.name() == name
            })?,
        mark: words.next()?.to_owned(),
        at: words.next()?.parse().ok()?,
    })
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Undo => "undo",
        _ => "do",
    }
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
        }
    }
}
