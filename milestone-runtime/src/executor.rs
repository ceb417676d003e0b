//! The private executor: all calls to the database are made on it, so that an action which blocks the application's executor loses no
//! lease, and none of them is dropped half-way when whoever asked no longer waits.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime as Tokio};

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Executor {
    handle: Handle,
    tokio: Mutex<Option<Tokio>>,
}

impl Executor {
    pub(crate) fn new() -> Result<Self, std::io::Error> {
        let tokio = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("milestone-io")
            .enable_all()
            .build()?;
        Ok(Self {
            handle: tokio.handle().clone(),
            tokio: Mutex::new(Some(tokio)),
        })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a call to its end, also if the returned future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.handle.spawn(call).await.map_err(|_| Error::Closed)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Dropping a tokio runtime inside of another one panics; this does not.
        if let Some(tokio) = self
            .tokio
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            tokio.shutdown_background();
        }
    }
}
