//! Worker processes that are killed and frozen.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// How worker processes are started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file of `torture_worker`.
    pub path: PathBuf,
    /// The database.
    pub uri: String,
    /// What their actions write to.
    pub journal: PathBuf,
    /// Where their errors go to; nothing is to where this process's go.
    pub errors: Option<PathBuf>,
    /// The lease; nothing is the default.
    pub lease: Duration,
    /// The poll period; nothing is the default.
    pub poll: Duration,
}

/// A worker process. Dropped, it is killed.
#[derive(Debug)]
pub struct WorkerProcess {
    name: String,
    child: Child,
    frozen: bool,
}

impl Program {
    /// Starts a worker.
    ///
    /// # Panics
    /// If the program is not there.
    pub fn start(&self, name: &str) -> WorkerProcess {
        WorkerProcess::start(name, self.command(name))
    }

    /// Starts a worker with one place, which starts a milestone of that id and stays in its first action.
    ///
    /// # Panics
    /// If the program is not there.
    pub fn start_hanging(&self, name: &str, id: &str) -> WorkerProcess {
        let mut command = self.command(name);
        command.args(["hang", id]);
        WorkerProcess::start(name, command)
    }

    /// Starts a worker with arguments of its own.
    ///
    /// # Panics
    /// If the program is not there.
    pub fn start_with(&self, name: &str, arguments: &[&str]) -> WorkerProcess {
        let mut command = self.command(name);
        command.args(arguments);
        WorkerProcess::start(name, command)
    }

    /// Starts a worker whose wall clock is wrong by so many seconds, and reads from it what time it believes it is, in milliseconds since
    /// 1970.
    ///
    /// # Panics
    /// If the program or the clock is not there.
    pub fn start_skewed(&self, name: &str, clock: &Path, seconds: i64) -> (WorkerProcess, u64) {
        use std::io::{BufRead as _, BufReader};
        assert!(clock.is_file(), "{} is not built", clock.display());
        let mut command = self.command(name);
        command
            .arg("clock")
            .env("LD_PRELOAD", clock)
            .env("SKEWED_CLOCK", seconds.to_string())
            .stdout(Stdio::piped());
        let mut worker = WorkerProcess::start(name, command);
        let output = worker.child.stdout.take().expect("its output is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says what time it is");
        (worker, line.trim().parse().expect("a time"))
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg(&self.uri)
            .arg(&self.journal)
            .arg(name)
            .args([self.lease, self.poll].map(|time| time.as_millis().to_string()))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(errors) = &self.errors {
            let file = File::options().append(true).create(true).open(errors);
            command.stderr(file.expect("a file for errors"));
        }
        command
    }
}

impl WorkerProcess {
    fn start(name: &str, mut command: Command) -> Self {
        Self {
            name: name.to_owned(),
            child: command.spawn().expect("a worker process"),
            frozen: false,
        }
    }

    /// What it calls itself, and what leases and reports of it begin with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has ended, which it should not by itself.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child can be asked")
            .is_some()
    }

    /// Whether it is frozen.
    pub const fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Kills it without a word.
    ///
    /// # Panics
    /// If it has ended by itself, which no worker does, whatever happens.
    pub fn kill(&mut self) {
        assert!(
            !self.has_ended(),
            "the worker {} has ended by itself",
            self.name
        );
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
    }

    /// Asks it to shut down.
    ///
    /// # Panics
    /// If it cannot be asked.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has ended, and tells whether it ended well.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn wait(&mut self) -> bool {
        self.child.wait().expect("a child ends").success()
    }

    /// Stops it where it stands: it does nothing and hears nothing until [`WorkerProcess::thaw`].
    ///
    /// # Panics
    /// If it cannot be stopped.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
        self.frozen = true;
    }

    /// Lets it go on, as if no time had passed.
    ///
    /// # Panics
    /// If it cannot be told.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
        self.frozen = false;
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.expect("a process has a number");
        kill_process(id, signal).expect("a child can be sent signals");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
