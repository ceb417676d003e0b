//! What happened in a simulation, in order: its end for people, a hash of all of it to compare two runs, and the first thing that was wrong.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

/// How many lines are kept.
const TAIL: usize = 400;

pub(crate) struct Log {
    began: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    hash: DefaultHasher,
    lines: u64,
    tail: VecDeque<String>,
    tokens: BTreeMap<String, usize>,
    wrong: Option<String>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            inner: Mutex::default(),
        }
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn note(&self, who: &str, what: fmt::Arguments<'_>) {
        let line = format!("{:>7} {who}: {what}", self.now());
        let mut inner = self.lock();
        line.hash(&mut inner.hash);
        inner.lines += 1;
        if inner.tail.len() == TAIL {
            inner.tail.pop_front();
        }
        inner.tail.push_back(line);
    }

    /// Something cannot be: the first such thing is what the seed has found.
    pub(crate) fn wrong(&self, what: impl fmt::Display) {
        self.note("CHECK", format_args!("{what}"));
        self.lock().wrong.get_or_insert_with(|| what.to_string());
    }

    pub(crate) fn found(&self) -> Option<String> {
        self.lock().wrong.clone()
    }

    /// Tokens are random; in the log they have the number of their turn.
    pub(crate) fn token(&self, token: &str) -> usize {
        let mut inner = self.lock();
        let next = inner.tokens.len();
        *inner.tokens.entry(token.to_owned()).or_insert(next)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.lock().hash.finish()
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lock().lines
    }

    pub(crate) fn tail(&self) -> String {
        let inner = self.lock();
        let lines: Vec<&str> = inner.tail.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
