//! A backtrace as people read it: the frames of the action, without those that made the backtrace and those that called the action.

use std::fmt::Write as _;

/// What made the backtrace: these frames come first.
const MAKERS: [&str; 11] = [
    "std::backtrace",
    "backtrace::",
    "milestone_runtime::action::error",
    "milestone_runtime::engine::body::install_panic_hook",
    "as milestone_runtime::action::error",
    "std::panicking",
    "core::panicking",
    "rust_begin_unwind",
    "begin_panic_handler",
    "std::sys::backtrace",
    "alloc::boxed::Box",
];

/// What called the action: this frame and all behind it are the framework's and the executor's.
const CALLERS: [&str; 3] = [
    "milestone_runtime::engine::body",
    "engine::body::{",
    "__rust_begin_short_backtrace",
];

/// The part of a backtrace's text that tells where the error came from; the whole text, if that cannot be found in it.
pub(crate) fn readable(backtrace: &str) -> String {
    let frames = frames(backtrace);
    let is = |names: &[&str], frame: &Vec<&str>| names.iter().any(|name| frame[0].contains(name));
    let first = frames
        .iter()
        .position(|frame| !is(&MAKERS, frame))
        .unwrap_or(0);
    let last = frames
        .iter()
        .skip(first)
        .position(|frame| is(&CALLERS, frame))
        .map_or(frames.len(), |at| first + at);
    if first >= last {
        return backtrace.to_owned();
    }
    let mut text = String::new();
    for (number, frame) in frames[first..last].iter().enumerate() {
        let symbol = frame[0]
            .trim_start()
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start_matches(": ");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number:4}: {symbol}");
        for place in &frame[1..] {
            text.push_str(place);
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// The lines of each frame: its symbol, then its place, if that is known.
fn frames(backtrace: &str) -> Vec<Vec<&str>> {
    let mut frames: Vec<Vec<&str>> = Vec::new();
    for line in backtrace.lines() {
        let number = line.trim_start().split(": ").next().unwrap_or_default();
        let is_symbol = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        match frames.last_mut() {
            _ if is_symbol => frames.push(vec![line]),
            Some(frame) => frame.push(line),
            None => {}
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_of_the_action_stay() {
        let backtrace = "   0: std::backtrace::Backtrace::force_capture
             at /rustc/1/library/std/src/backtrace.rs:312:9
   1: milestone_runtime::action::error::ActionError::new
   2: bank::overdrawn
             at ./src/bank.rs:7:5
   3: bank::debit::{{closure}}
             at ./src/bank.rs:20:9
   4: <milestone_runtime::engine::body::Caught as core::future::future::Future>::poll
   5: tokio::runtime::task::raw::poll
";
        let expected = "   0: bank::overdrawn
             at ./src/bank.rs:7:5
   1: bank::debit::{{closure}}
             at ./src/bank.rs:20:9";
        assert_eq!(readable(backtrace), expected);
    }

    #[test]
    fn what_cannot_be_parsed_stays_whole() {
        assert_eq!(readable("disabled backtrace"), "disabled backtrace");
    }
}
