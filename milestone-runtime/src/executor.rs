//! The private executor: all calls to the database are made on it, so that an action which blocks the application's executor loses no
//! lease, and none of them is dropped half-way when whoever asked no longer waits.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, Runtime as Tokio},
    task::JoinHandle,
    time::Sleep,
};

use crate::error::Error;

/// Where tasks of a runtime run.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    handle: Handle,
    #[cfg(feature = "testing")]
    process: Option<crate::testing::Process>,
}

impl Tasks {
    pub(crate) fn on(handle: Handle) -> Self {
        Self {
            handle,
            #[cfg(feature = "testing")]
            process: None,
        }
    }

    /// In a process that is only simulated.
    #[cfg(feature = "testing")]
    pub(crate) fn of_process(handle: Handle, process: crate::testing::Process) -> Self {
        Self {
            handle,
            process: Some(process),
        }
    }

    /// A wait by the clock of these tasks, for a task elsewhere: the application's executor may have no timers.
    pub(crate) fn sleep(&self, wait: Duration) -> Sleep {
        let _entered = self.handle.enter();
        tokio::time::sleep(wait)
    }

    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        #[cfg(feature = "testing")]
        if let Some(process) = &self.process {
            return process.spawn(&self.handle, task);
        }
        self.handle.spawn(task)
    }
}

#[derive(Debug)]
pub(crate) struct Executor {
    tasks: Tasks,
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
            tasks: Tasks::on(tokio.handle().clone()),
            tokio: Mutex::new(Some(tokio)),
        })
    }

    /// One that has no threads of its own.
    #[cfg(feature = "testing")]
    pub(crate) fn of(tasks: Tasks) -> Self {
        Self {
            tasks,
            tokio: Mutex::new(None),
        }
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Runs a call to its end, also if the returned future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.tasks.spawn(call).await.map_err(|_| Error::Closed)
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
