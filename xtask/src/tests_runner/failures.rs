//! Which tests have failed and why, told again at the end: logs are cut in their middle.

use std::fmt;

/// How much is told of one test, and of all together.
const LINES: usize = 40;
const LINES_IN_ALL: usize = 400;
/// How much is told of a test where many have failed.
const FEWEST_LINES: usize = 5;

/// What was read of the output of `cargo test`, as far as it tells of failures.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The output of the test program that runs.
    program: Vec<String>,
    failed: Vec<Failed>,
    /// The last lines of programs that ended without a result.
    died: Vec<Vec<String>>,
}

/// A test that has failed, and what it printed.
#[derive(Debug, PartialEq, Eq)]
struct Failed {
    name: String,
    output: Vec<String>,
}

impl Failures {
    /// Reads one line of what test programs print.
    pub(super) fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if is_beginning(line) {
            self.has_died();
        }
        self.program.push(line.to_owned());
        if line.starts_with("test result: ") {
            let output = std::mem::take(&mut self.program);
            if line.starts_with("test result: FAILED") {
                self.failed.extend(failed_in(&output));
            }
        }
    }

    /// All output was read.
    pub(super) fn end(&mut self) {
        self.has_died();
    }

    /// A program that has printed no result aborted or was killed; what it printed last is all that is known.
    fn has_died(&mut self) {
        let mut output = std::mem::take(&mut self.program);
        if output.first().is_some_and(|line| is_beginning(line)) {
            let last = output.len().saturating_sub(LINES);
            self.died.push(output.split_off(last));
        }
    }

    /// The names alone.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().map(|failed| &*failed.name)
    }
}

/// Each failed test with the beginning of its reason, then the programs that died.
impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.failed.len().max(1);
        let lines = (LINES_IN_ALL / count).clamp(FEWEST_LINES, LINES);
        for failed in &self.failed {
            writeln!(f, "\n---- {} ----", failed.name)?;
            let reason = reason(&failed.output);
            for line in reason.iter().take(lines) {
                writeln!(f, "{line}")?;
            }
            if reason.len() > lines {
                writeln!(f, "({} more lines stand above)", reason.len() - lines)?;
            }
        }
        for output in &self.died {
            writeln!(
                f,
                "\n---- a test program that printed no result, at its end ----"
            )?;
            for line in output {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}

/// Whether a line is the first one of a test program.
fn is_beginning(line: &str) -> bool {
    line.strip_prefix("running ")
        .and_then(|rest| {
            rest.strip_suffix(" tests")
                .or_else(|| rest.strip_suffix(" test"))
        })
        .is_some_and(|count| count.parse::<u64>().is_ok())
}

/// The failed tests of one program. After all else it lists their names, so that what one of them has printed is not taken for the heading
/// of another.
fn failed_in(output: &[String]) -> Vec<Failed> {
    let is_list = |line: &String| line == "failures:";
    let list = output.iter().rposition(is_list).unwrap_or(output.len());
    let names = output[list..]
        .iter()
        .filter_map(|line| line.strip_prefix("    "));
    let mut failed: Vec<Failed> = names
        .map(|name| Failed {
            name: name.to_owned(),
            output: Vec::new(),
        })
        .collect();
    let mut current = None;
    for line in &output[..list] {
        let heading = line.strip_prefix("---- ").and_then(|rest| {
            let rest = rest.strip_suffix(" ----")?;
            rest.strip_suffix(" stdout")
                .or_else(|| rest.strip_suffix(" stderr"))
        });
        let headed = heading.and_then(|name| failed.iter().position(|failed| failed.name == name));
        if headed.is_some() {
            current = headed;
        } else if let Some(index) = current {
            failed[index].output.push(line.clone());
        }
    }
    failed
}

/// From the panic on, if there is one; of a backtrace only the places in this repository.
fn reason(output: &[String]) -> Vec<&str> {
    let panic = output
        .iter()
        .position(|line| line.starts_with("thread '") && line.contains("panicked at"));
    let mut in_backtrace = false;
    let mut reason: Vec<&str> = Vec::new();
    for line in &output[panic.unwrap_or(0)..] {
        if line.eq_ignore_ascii_case("stack backtrace:") {
            in_backtrace = true;
            continue;
        }
        let is_frame = line.starts_with(' ') || line.is_empty();
        in_backtrace &= is_frame;
        let is_here = line.trim_start().starts_with("at ./");
        let is_note = line.starts_with("note: ") && line.contains("RUST_BACKTRACE");
        let again = line.is_empty() && reason.last().is_none_or(|last| last.is_empty());
        if (!in_backtrace || is_here) && !is_note && !again {
            reason.push(line);
        }
    }
    while reason.last().is_some_and(|line| line.is_empty()) {
        reason.pop();
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 3 tests
test good ... ok
test writes::cut ... FAILED
test silent ... FAILED

failures:

---- writes::cut stdout ----
the server is at 27017
failures:
    none yet
---- good stdout ----

thread 'writes::cut' (26708) panicked at tests/tests/writes.rs:149:9:
assertion `left == right` failed
  left: 1
 right: 2
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/panicking.rs:689:5
   1: {async_block#0}
             at ./tests/writes.rs:149:9
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.

thread 'other' (1) panicked at tests/src/look.rs:1:1:
waited for it


failures:
    silent
    writes::cut

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 32.61s
";

    fn read(output: &str) -> Failures {
        let mut failures = Failures::default();
        for line in output.lines() {
            failures.read(&format!("{line}\n"));
        }
        failures.end();
        failures
    }

    #[test]
    fn names_and_reasons_are_told() {
        let failures = read(OUTPUT);
        assert_eq!(
            failures.names().collect::<Vec<_>>(),
            ["silent", "writes::cut"]
        );
        let expected = "
---- silent ----

---- writes::cut ----
thread 'writes::cut' (26708) panicked at tests/tests/writes.rs:149:9:
assertion `left == right` failed
  left: 1
 right: 2
             at ./tests/writes.rs:149:9

thread 'other' (1) panicked at tests/src/look.rs:1:1:
waited for it
";
        assert_eq!(failures.to_string(), expected);
    }

    #[test]
    fn an_error_without_a_panic_is_told() {
        let output = OUTPUT.replace("panicked at", "slept at");
        let told = read(&output).to_string();
        assert!(
            told.contains("---- writes::cut ----\nthe server is at 27017\nfailures:\n"),
            "{told}"
        );
    }

    #[test]
    fn good_programs_leave_nothing() {
        let output =
            "\nrunning 1 test\ntest good ... ok\n\ntest result: ok. 1 passed; 0 failed; ..\n";
        let failures = read(&format!("{output}{output}"));
        assert_eq!(failures.names().count(), 0);
        assert_eq!(failures.to_string(), "");
    }

    #[test]
    fn a_program_that_died_is_told_with_its_last_lines() {
        let lines: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        let died = format!("\nrunning 3 tests\n{}\n", lines.join("\n"));
        for output in [died.clone(), format!("{died}{OUTPUT}")] {
            let told = read(&output).to_string();
            assert!(
                told.contains("printed no result, at its end ----\nline 6"),
                "{told}"
            );
            assert!(told.contains("line 99"), "{told}");
        }
    }

    #[test]
    fn long_reasons_and_many_of_them_are_cut() {
        let program = |tests: usize| {
            let names: Vec<String> = (0..tests).map(|test| format!("t{test}")).collect();
            let dump = "line\n".repeat(100);
            let outputs = names.iter().map(|name| {
                format!("---- {name} stdout ----\nthread '{name}' panicked at a.rs:1:1:\n{dump}\n")
            });
            let (outputs, names) = (outputs.collect::<String>(), names.join("\n    "));
            format!(
                "running {tests} tests\n\nfailures:\n\n{outputs}\nfailures:\n    {names}\n\ntest result: FAILED. 0 passed; .."
            )
        };
        let one = read(&program(1)).to_string();
        assert_eq!(one.lines().count(), 1 + LINES + 2, "{one}");
        assert!(one.contains("(61 more lines stand above)"), "{one}");
        let many = read(&program(50)).to_string();
        assert_eq!(many.lines().count(), 50 * (1 + LINES_IN_ALL / 50 + 2));
    }
}
