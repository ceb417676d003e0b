//! The counts that `cargo test` prints, added up.

use std::fmt;

/// The sum of all `test result:` lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    failed: u64,
    ignored: u64,
    left_out: u64,
}

/// What the counts and cargo's exit status mean together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) good: bool,
    pub(super) failed: u64,
    pub(super) problems: Vec<&'static str>,
}

impl Tally {
    /// Adds the counts of a line like `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ..`.
    pub(super) fn read(&mut self, line: &str) {
        let Some(counts) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.1.split(';') {
            let Some((number, what)) = part.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what.trim_end() {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                "filtered out" => self.left_out += number,
                _ => {}
            }
        }
    }

    pub(super) fn verdict(&self, cargo_succeeded: bool) -> Verdict {
        let mut problems = Vec::new();
        // A test program that aborts prints no counts: it must not pass for one without failures.
        let silent = !cargo_succeeded && self.failed == 0;
        if silent {
            problems.push(
                "cargo failed, though no test says so: one did not compile, or a test program died",
            );
        }
        if self.passed + self.failed == 0 {
            problems.push("no test ran");
        }
        Verdict {
            good: cargo_succeeded && self.failed == 0 && problems.is_empty(),
            failed: self.failed + u64::from(silent),
            problems,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ran = self.passed + self.failed;
        write!(
            f,
            "{ran} ran: {} passed, {} failed",
            self.passed, self.failed
        )?;
        if self.ignored > 0 {
            write!(f, "; {} ignored", self.ignored)?;
        }
        if self.left_out > 0 {
            write!(f, "; {} filtered out", self.left_out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s\n";
    const BAD: &str = "test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s";

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.read(line);
        }
        tally
    }

    #[test]
    fn counts_are_added_up() {
        let sum = tally(&[GOOD, "running 5 tests", BAD]);
        let expected = Tally {
            passed: 7,
            failed: 1,
            ignored: 1,
            left_out: 2,
        };
        assert_eq!(sum, expected);
        assert_eq!(
            sum.to_string(),
            "8 ran: 7 passed, 1 failed; 1 ignored; 2 filtered out"
        );
    }

    #[test]
    fn other_lines_count_nothing() {
        let sum = tally(&[
            "test store::claims ... ok",
            "  test result: ok. 9 passed; 0 failed",
            "test result: what passed; failed",
            "",
        ]);
        assert_eq!(sum, Tally::default());
    }

    #[test]
    fn only_tests_that_ran_and_passed_are_good() {
        assert!(tally(&[GOOD]).verdict(true).good);
        let failed = tally(&[GOOD, BAD]).verdict(false);
        assert!(!failed.good);
        assert_eq!(failed.failed, 1);
        assert!(failed.problems.is_empty());
        let none = tally(&[]).verdict(true);
        assert!(!none.good);
        assert_eq!(none.problems, ["no test ran"]);
    }

    #[test]
    fn a_program_that_died_counts_as_failed() {
        let died = tally(&[GOOD]).verdict(false);
        assert!(!died.good);
        assert_eq!(died.failed, 1);
        assert_eq!(died.problems.len(), 1);
    }
}
