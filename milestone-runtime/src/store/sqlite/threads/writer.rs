//! The thread that writes.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::watch;

use super::{Answer, Job, Read, Write, run};
use crate::store::{
    StoreError,
    sqlite::{
        alive::Alive,
        connect,
        errors::{Fault, again, stopped},
        names::{Database, Place},
        session::{Reading, Session},
    },
};

/// From so many rows on, a transaction takes no further write: the first of them waits for the last, and the way to the disk is shared by
/// enough.
const FULL: usize = 128;

/// How often it looks for writes of other processes, while somebody listens.
const LOOK_EVERY: Duration = Duration::from_millis(25);

pub(super) struct Writer {
    database: Arc<Database>,
    jobs: mpsc::Receiver<Job>,
    hints: watch::Sender<u64>,
    connection: Option<Connection>,
    alive: Alive,
    /// What SQLite counts the writes of others by, as last seen.
    seen: Option<i64>,
    looked: Instant,
}

impl Writer {
    pub(super) fn new(
        database: Arc<Database>,
        jobs: mpsc::Receiver<Job>,
        hints: watch::Sender<u64>,
    ) -> Self {
        let alive = Alive::new(Arc::clone(&database));
        Self {
            database,
            jobs,
            hints,
            connection: None,
            alive,
            seen: None,
            looked: Instant::now(),
        }
    }

    pub(super) fn run(mut self) {
        while let Some(first) = self.next() {
            let mut reads = Vec::new();
            let mut writes = Vec::new();
            let mut rows = 0;
            let mut listens = false;
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Write(writing) => {
                        writes.push(writing.write);
                        rows += writing.rows;
                    }
                    Job::Read(read) => reads.push(read),
                    Job::Listen => listens = true,
                }
                next = (rows < FULL && reads.len() < FULL)
                    .then(|| self.jobs.try_recv().ok())
                    .flatten();
            }
            if listens {
                self.look();
            }
            if !writes.is_empty() {
                self.write(writes);
            }
            for read in reads {
                self.read(read);
            }
        }
    }

    /// Waits for a job, and looks for writes of others meanwhile. Nothing: there will be none.
    fn next(&mut self) -> Option<Job> {
        loop {
            let listens =
                self.hints.receiver_count() > 0 && matches!(self.database.place, Place::File(_));
            if !listens {
                self.seen = None;
                return self.jobs.recv().ok();
            }
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look();
            }
            match self.jobs.recv_timeout(LOOK_EVERY) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        // It changes with the writes of all connections but this one.
        let version = |connection: &Connection| {
            connection.pragma_query_value(None, "data_version", |row| row.get(0))
        };
        let version = self
            .connection
            .as_ref()
            .and_then(|connection| version(connection).ok());
        if version != self.seen {
            let first = self.seen.is_none();
            self.seen = version;
            if !first {
                self.tell();
            }
        }
    }

    fn tell(&self) {
        self.hints
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    fn read(&mut self, read: Read) {
        let connected = self.connected();
        match (connected, &self.connection) {
            (Ok(()), Some(connection)) => read(Ok(Reading {
                connection,
                database: &self.database,
            })),
            (Ok(()), None) => read(Err(stopped())),
            (Err(error), _) => read(Err(error)),
        };
    }

    fn write(&mut self, writes: Vec<Write>) {
        if let Err(error) = self.connected() {
            return refuse(writes, &error);
        }
        let Some(connection) = &self.connection else {
            return;
        };
        if let Err(error) = run(connection, "BEGIN IMMEDIATE") {
            let error = self.failed(error.into());
            return refuse(writes, &error);
        }
        let mut session = Session {
            connection,
            database: &self.database,
            alive: &mut self.alive,
            hint: false,
        };
        let mut answers: Vec<Answer> = Vec::with_capacity(writes.len());
        let mut is_undone = false;
        let mut writes = writes.into_iter();
        for write in writes.by_ref() {
            answers.push(write(Ok(&mut session)));
            if connection.is_autocommit() {
                // SQLite has undone the transaction, for want of disk or memory.
                is_undone = true;
                break;
            }
        }
        let hint = session.hint;
        let done = if is_undone {
            let reason = "it has undone the transaction, as another write in it failed".to_owned();
            Err(StoreError::Unreachable {
                server: self.database.place.to_string(),
                reason,
                sent: false,
            }
            .into())
        } else {
            run(connection, "COMMIT").map_err(Fault::from)
        };
        let error = done.err().map(|fault| self.failed(fault));
        if let Some(error) = &error {
            refuse(writes.collect(), error);
        }
        for answer in answers {
            answer(error.as_ref().map(again));
        }
        if hint && error.is_none() {
            self.tell();
        }
    }

    fn connected(&mut self) -> Result<(), StoreError> {
        if self.connection.is_none() {
            let connection =
                connect::writing(&self.database).map_err(|fault| fault.at(&self.database.place))?;
            self.connection = Some(connection);
        }
        Ok(())
    }

    /// Leaves no transaction behind, and no connection that is of no more use. A memory ends with its connection, so that stays.
    fn failed(&mut self, fault: Fault) -> StoreError {
        let is_file = matches!(self.database.place, Place::File(_));
        let rolled_back = self.connection.as_ref().is_none_or(|connection| {
            connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok()
        });
        if is_file && (!rolled_back || fault.is_of_the_connection()) {
            self.connection = None;
        }
        fault.at(&self.database.place)
    }
}

fn refuse(writes: Vec<Write>, error: &StoreError) {
    for write in writes {
        write(Err(again(error)))(None);
    }
}
