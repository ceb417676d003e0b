//! Processes that are only simulated, so that a test can freeze and kill them at any moment of a paused clock.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinHandle},
};

/// A process that is only simulated: all tasks of the runtimes that are built in it, engine and actions, run on the executor of the
/// test. It can be frozen, as by SIGSTOP, and killed, as by SIGKILL. What it has sent to a store is on its way all the same, if the
/// store carries calls out on its own.
///
/// Under a paused clock on a current-thread runtime of tokio the time is virtual, and tasks take turns in an order that depends on nothing
/// but what they do. With `fastrand` seeded on the thread and ids given by the test, a run can be repeated exactly.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use milestone_runtime::{Method, action::Options, dynamic::Action, prelude::*, testing::{MemoryStore, Process}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> anyhow::Result<()> {
/// let store = Arc::new(MemoryStore::new());
/// let worker = |process: &Process| {
///     let greet = Method::new("greet", |_| async {
///         tokio::time::sleep(Duration::from_secs(60)).await;
///         Ok::<_, ActionError>("hello")
///     });
///     Runtime::builder("memory:").store(Arc::<MemoryStore>::clone(&store)).process(process)
///         .actions(std::iter::empty::<String>()).register(greet.options(Options::idempotent()))
/// };
/// let (first, second) = (Process::new(), Process::new());
/// let (one, two) = (worker(&first).build().await?, worker(&second).build().await?);
/// one.spawn();
/// let greeting = one.start("Greeting", Action::new("greet"), ()).id("g").await?;
/// first.kill();
/// two.spawn();
/// let handle = two.start("Greeting", Action::new("greet"), ()).id("g").await?;
/// assert_eq!(handle.ended().await?.actions[0].attempts, 2);
/// # drop(greeting);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Process {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    state: State,
    serial: u64,
    /// What it runs, in the order of their begin.
    tasks: BTreeMap<u64, Entry>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    Frozen,
    Killed,
}

#[derive(Default)]
struct Entry {
    /// Wakes it, if it waits for the thaw.
    waker: Option<Waker>,
    abort: Option<AbortHandle>,
}

impl Process {
    /// One that runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on nothing in it moves, until the thaw. A process that is killed stays so.
    pub fn freeze(&self) {
        let mut inner = self.lock();
        if inner.state == State::Running {
            inner.state = State::Frozen;
        }
    }

    /// It goes on. Timers that ended meanwhile go off now, and replies that came meanwhile are read.
    pub fn thaw(&self) {
        let mut inner = self.lock();
        if inner.state == State::Frozen {
            inner.state = State::Running;
            let entries = inner.tasks.values_mut();
            let wakers: Vec<Waker> = entries.filter_map(|entry| entry.waker.take()).collect();
            drop(inner);
            for waker in wakers {
                waker.wake();
            }
        }
    }

    /// It ends: nothing in it moves ever again, nobody is told.
    pub fn kill(&self) {
        let mut inner = self.lock();
        inner.state = State::Killed;
        let tasks = std::mem::take(&mut inner.tasks);
        drop(inner);
        for abort in tasks.into_values().filter_map(|entry| entry.abort) {
            abort.abort();
        }
    }

    /// Whether it is frozen.
    pub fn is_frozen(&self) -> bool {
        self.lock().state == State::Frozen
    }

    pub(crate) fn spawn<F>(&self, handle: &Handle, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let serial = {
            let mut inner = self.lock();
            inner.serial += 1;
            let serial = inner.serial;
            inner.tasks.insert(serial, Entry::default());
            serial
        };
        let task = handle.spawn(Within {
            process: self.clone(),
            serial,
            task: Box::pin(task),
        });
        let mut inner = self.lock();
        if inner.state == State::Killed {
            inner.tasks.remove(&serial);
            task.abort();
        } else if let Some(entry) = inner.tasks.get_mut(&serial) {
            entry.abort = Some(task.abort_handle());
        }
        drop(inner);
        task
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Process")
            .field("state", &inner.state)
            .field("tasks", &inner.tasks.len())
            .finish()
    }
}

/// A task that moves only while its process does.
struct Within<F> {
    process: Process,
    serial: u64,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut inner = self.process.lock();
        match inner.state {
            State::Running => {}
            State::Frozen => {
                let serial = self.serial;
                if let Some(entry) = inner.tasks.get_mut(&serial) {
                    entry.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            State::Killed => return Poll::Pending,
        }
        drop(inner);
        self.task.as_mut().poll(context)
    }
}

impl<F> Drop for Within<F> {
    fn drop(&mut self) {
        // What it drops may belong to the process, and must not find it locked.
        let entry = self.process.lock().tasks.remove(&self.serial);
        drop(entry);
    }
}
