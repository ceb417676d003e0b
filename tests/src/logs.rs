//! What is logged, for tests that look at it.

use std::{
    io,
    sync::{Mutex, Once, PoisonError},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

static LINES: Mutex<String> = Mutex::new(String::new());

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

/// Begins to collect what all threads of this process log.
pub fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("milestone_runtime=debug"))
            .with_ansi(false)
            .with_writer(Writer)
            .init();
    });
}

/// The lines that hold a text.
pub fn lines_with(text: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines
        .lines()
        .filter(|line| line.contains(text))
        .map(str::to_owned)
        .collect()
}
