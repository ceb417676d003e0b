//! Child processes that end with the program that started them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::process::ChildStdout;
use tokio::signal::unix::{SignalKind, signal};

/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);

/// Waits for a signal that asks this program to end.
pub(crate) async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

/// A program and all that it starts, as a process group of its own: dropped before its end, all of them are ended.
pub(crate) struct Group(tokio::process::Child);

impl Group {
    pub(crate) fn spawn(command: Command) -> Result<Self> {
        let program = command.get_program().display().to_string();
        let child = tokio::process::Command::from(command)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("could not start {program}"))?;
        Ok(Self(child))
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    pub(crate) async fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.0.wait().await?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(group) = self.0.id().and_then(pid) else {
            return;
        };
        let _ = kill_process_group(group, Signal::TERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            // Reaps the leader, which would count as a member of its group until then.
            let _ = self.0.try_wait();
            if test_kill_process_group(group).is_err() {
                return;
            }
            sleep(STEP);
        }
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// A server that writes to a log file; it is stopped on drop.
///
/// It stays in this program's process group, so that whoever kills the group leaves no server behind.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let output = File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("could not start {}", command.get_program().display()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// What it has printed so far.
    pub(crate) fn printed(&self) -> String {
        fs::read(&self.log).map_or_else(
            |_| String::new(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// The end of what it printed, for an error message.
    pub(crate) fn last_words(&self) -> String {
        let printed = self.printed();
        let lines: Vec<&str> = printed.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = pid(self.child.id())
            && let Ok(None) = self.child.try_wait()
        {
            let _ = kill_process(pid, Signal::TERM);
            let end = Instant::now() + GRACE;
            while Instant::now() < end {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                sleep(STEP);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
