//! The threads that do the work: one writes, one reads.
//!
//! The one that writes takes all writes that wait and carries them out in one transaction, so that they share the way to the disk; a
//! lone write waits for nothing. None is answered before it is on the disk.

mod reader;
mod writer;

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::{
    super::{Hints, StoreError, StoreFuture},
    errors::{Outcome, stopped},
    hints,
    names::{Database, Place},
    session::{Reading, Session},
};

/// A write, and about how many rows it changes.
struct Writing {
    write: Write,
    rows: usize,
}

/// A write, which gives what is to be answered once it is known whether the transaction is on the disk.
type Write = Box<dyn FnOnce(Result<&mut Session<'_>, StoreError>) -> Answer + Send>;

/// Takes the error of the transaction, if it failed.
type Answer = Box<dyn FnOnce(Option<StoreError>) + Send>;

/// A read, which tells whether the connection is of more use.
type Read = Box<dyn FnOnce(Result<Reading<'_>, StoreError>) -> bool + Send>;

enum Job {
    Write(Writing),
    Read(Read),
    /// Somebody listens for changes from now on.
    Listen,
}

/// The way to the threads. They end when it is dropped, after what they were given.
#[derive(Debug)]
pub(super) struct Threads {
    place: Arc<Database>,
    /// Nothing only while it is dropped.
    writer: Option<mpsc::Sender<Job>>,
    reader: Option<mpsc::Sender<Job>>,
    hints: watch::Sender<u64>,
    running: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(database: &Arc<Database>) -> Result<Self, StoreError> {
        let hints = watch::Sender::new(0);
        let (writer, jobs) = mpsc::channel();
        let mut threads = Self {
            place: Arc::clone(database),
            writer: Some(writer.clone()),
            reader: None,
            hints: hints.clone(),
            running: Vec::new(),
        };
        threads.run(
            "milestone-sqlite-writer",
            writer::Writer::new(Arc::clone(database), jobs, hints),
            writer::Writer::run,
        )?;
        if let Place::File(path) = &database.place {
            let (reader, jobs) = mpsc::channel();
            threads.reader = Some(reader);
            let reader = reader::Reader::new(Arc::clone(database), path.clone(), jobs);
            threads.run("milestone-sqlite-reader", reader, reader::Reader::run)?;
        } else {
            // A memory has one connection.
            threads.reader = Some(writer);
        }
        Ok(threads)
    }

    fn run<T: Send + 'static>(
        &mut self,
        name: &str,
        worker: T,
        run: fn(T),
    ) -> Result<(), StoreError> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(worker));
        self.running.push(thread.map_err(|error| {
            StoreError::Other(format!("the thread {name} does not start: {error}"))
        })?);
        Ok(())
    }

    /// Does it in a transaction, which is begun whether or not the future is awaited.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.write_many(1, work)
    }

    /// The same for a write that changes about so many rows.
    pub(super) fn write_many<T: Send + 'static>(
        &self,
        rows: usize,
        work: impl FnOnce(&mut Session<'_>) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (tell, told) = oneshot::channel();
        let database = Arc::clone(&self.place);
        let write: Write = Box::new(move |session| {
            let result = session.and_then(|session| {
                in_savepoint(session, work).map_err(|fault| fault.at(&database.place))
            });
            Box::new(move |failed| {
                // Whoever asked may have gone.
                let _ = tell.send(match failed {
                    None => result,
                    Some(error) => result.and(Err(error)),
                });
            })
        });
        answer(
            self.writer.as_ref(),
            Job::Write(Writing { write, rows }),
            told,
        )
    }

    /// Reads what is stored.
    pub(super) fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(Reading<'_>) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (tell, told) = oneshot::channel();
        let database = Arc::clone(&self.place);
        let read: Read = Box::new(move |reading| {
            let mut is_good = true;
            let result = reading.and_then(|reading| {
                caught(|| work(reading)).map_err(|fault| {
                    is_good = !fault.is_of_the_connection();
                    fault.at(&database.place)
                })
            });
            let _ = tell.send(result);
            is_good
        });
        answer(self.reader.as_ref(), Job::Read(read), told)
    }

    pub(super) fn hints(&self) -> Hints {
        let hints = hints::stream(self.hints.subscribe());
        if let Some(writer) = &self.writer {
            // If it has ended, so has the stream.
            let _ = writer.send(Job::Listen);
        }
        hints
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        (self.writer, self.reader) = (None, None);
        for thread in self.running.drain(..) {
            // A thread that panicked has told so.
            let _ = thread.join();
        }
    }
}

fn answer<T: Send + 'static>(
    jobs: Option<&mpsc::Sender<Job>>,
    job: Job,
    told: oneshot::Receiver<Result<T, StoreError>>,
) -> StoreFuture<'static, T> {
    let sent = jobs.is_some_and(|jobs| jobs.send(job).is_ok());
    Box::pin(async move {
        if !sent {
            return Err(stopped());
        }
        told.await.map_err(|_| stopped())?
    })
}

/// A document on which a library panics must not end the thread.
fn caught<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // A write that panics is undone, and a read changes nothing.
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(StoreError::Other("the store has panicked over this call".to_owned()).into())
    })
}

/// Runs a statement that is run again and again.
fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

/// A write that fails undoes what it has done, and nothing else of the transaction.
fn in_savepoint<T>(
    session: &mut Session<'_>,
    work: impl FnOnce(&mut Session<'_>) -> Outcome<T>,
) -> Outcome<T> {
    let connection = session.connection;
    run(connection, "SAVEPOINT job")?;
    let result = caught(|| work(session));
    if result.is_ok() {
        run(connection, "RELEASE job")?;
    } else if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK TO job; RELEASE job")?;
    }
    result
}
