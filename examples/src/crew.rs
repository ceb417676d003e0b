//! Worker processes that are killed at random: the example itself, started again as a worker.

use std::{
    env,
    io::{self, Read as _},
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Some worker processes. They are killed when the crew is dropped.
pub struct Crew {
    arguments: Vec<String>,
    workers: Vec<Child>,
    next: Instant,
    random: fastrand::Rng,
    every: Duration,
    /// How many were killed at random.
    pub kills: usize,
}

impl Crew {
    /// Starts that many processes of this program with those arguments. The seed decides which of them are killed.
    ///
    /// # Errors
    /// If a process cannot be started.
    pub fn start(size: usize, every: Duration, seed: u64, arguments: &[&str]) -> io::Result<Self> {
        let mut crew = Self {
            arguments: arguments.iter().map(ToString::to_string).collect(),
            workers: Vec::with_capacity(size),
            next: Instant::now() + every,
            random: fastrand::Rng::with_seed(seed),
            every,
            kills: 0,
        };
        for _ in 0..size {
            let worker = crew.worker()?;
            crew.workers.push(worker);
        }
        Ok(crew)
    }

    fn worker(&self) -> io::Result<Child> {
        Command::new(env::current_exe()?)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .spawn()
    }

    /// If it is time, one of them is killed without a word, and another one takes its place.
    ///
    /// # Errors
    /// If a process cannot be started.
    pub fn kill_one_now_and_then(&mut self) -> io::Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + self.every;
        let victim = self.random.usize(..self.workers.len());
        self.workers[victim].kill()?;
        self.workers[victim].wait()?;
        self.workers[victim] = self.worker()?;
        self.kills += 1;
        Ok(())
    }
}

/// Lets a worker process end when the one that started it is gone, however that came.
pub fn end_with_the_crew() {
    thread::spawn(|| {
        // Nothing is ever written: it ends when the other end of the pipe is closed.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // It may be gone already.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}
