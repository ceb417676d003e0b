//! A backtrace as people read it: the frames of the action, without those that made the backtrace and those that called the action.

use std::fmt::Write as _;

/// What made the backtrace: these frames come first.
const MAKERS: [&str; 13] = [
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
    "core::convert::",
    "anyhow::",
];

/// The same, where the symbols lack their path, as they do with `debug = "line-tables-only"`.
const MAKERS_PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/action/error.rs");

/// What begins a panic. All frames before it are those of the panic and of the hook that saw it.
const PANICS: [&str; 3] = [
    "rust_begin_unwind",
    "core::panicking",
    "panicking::begin_panic",
];

/// What called the action: this frame and all behind it are the framework's and the executor's.
const CALLERS: [&str; 3] = [
    "milestone_runtime::engine::body",
    "engine::body::{",
    "__rust_begin_short_backtrace",
];

const CALLERS_PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/body.rs");

/// The part of a backtrace's text that tells where the error came from; the whole text, if that cannot be found in it.
pub(crate) fn readable(backtrace: &str) -> String {
    let frames = frames(backtrace);
    let is = |names: &[&str], frame: &Vec<&str>| names.iter().any(|name| frame[0].contains(name));
    let at = |file: &str, frame: &Vec<&str>| frame[1..].iter().any(|place| place.contains(file));
    let makes = |frame: &Vec<&str>| is(&MAKERS, frame) || at(MAKERS_PLACE, frame);
    let panicked = frames
        .iter()
        .rposition(|frame| is(&PANICS, frame))
        .map_or(0, |at| at + 1);
    let first = frames
        .iter()
        .skip(panicked)
        .position(|frame| !makes(frame))
        .map_or(0, |at| panicked + at);
    let last = frames
        .iter()
        .skip(first)
        .position(|frame| is(&CALLERS, frame) || at(CALLERS_PLACE, frame))
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
    fn the_hook_of_a_panic_is_left_out() {
        let here = env!("CARGO_MANIFEST_DIR");
        let backtrace = format!(
            "   0: std::backtrace::Backtrace::force_capture
   1: {{closure#0}}
             at {here}/src/engine/body.rs:60:40
   2: std::thread::local::LocalKey<T>::with
   3: std::panicking::panic_with_hook
   4: __rustc::rust_begin_unwind
   5: core::panicking::panic_fmt
   6: {{async_fn#0}}
             at ./src/bank.rs:7:5
   7: {{closure#0}}
             at {here}/src/engine/body.rs:130:49
   8: tokio::runtime::task::raw::poll
"
        );
        let expected = "   0: {async_fn#0}
             at ./src/bank.rs:7:5";
        assert_eq!(readable(&backtrace), expected);
    }

    #[test]
    fn what_cannot_be_parsed_stays_whole() {
        assert_eq!(readable("disabled backtrace"), "disabled backtrace");
    }
}
