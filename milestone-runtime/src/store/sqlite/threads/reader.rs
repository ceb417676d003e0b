//! The thread that reads.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
};

use rusqlite::Connection;

use super::{Job, Read};
use crate::store::sqlite::{connect, names::Database, session::Reading};

pub(super) struct Reader {
    database: Arc<Database>,
    path: PathBuf,
    jobs: mpsc::Receiver<Job>,
    connection: Option<Connection>,
}

impl Reader {
    pub(super) fn new(database: Arc<Database>, path: PathBuf, jobs: mpsc::Receiver<Job>) -> Self {
        Self {
            database,
            path,
            jobs,
            connection: None,
        }
    }

    pub(super) fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            if let Job::Read(read) = job {
                self.read(read);
            }
        }
    }

    fn read(&mut self, read: Read) {
        let connection = match self
            .connection
            .take()
            .map_or_else(|| connect::reading(&self.database, &self.path), Ok)
        {
            Ok(connection) => self.connection.insert(connection),
            Err(fault) => {
                read(Err(fault.at(&self.database.place)));
                return;
            }
        };
        let reading = Reading {
            connection,
            database: &self.database,
        };
        if !read(Ok(reading)) {
            self.connection = None;
        }
    }
}
