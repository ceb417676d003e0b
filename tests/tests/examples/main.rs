//! The examples, run as a reader runs them: as processes, on each store. Their doc comments show what they print.

mod toolkit;
mod transfers;

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use milestone_tests::{on_stores, place::Place};
use tempfile::TempDir;

/// How long an example may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Builds the examples once, into the folder from which this test runs, and says where they are.
fn examples() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = env::current_exe().expect("a test knows where it is");
        let profile = test.ancestors().nth(2).expect("target/debug/deps/test");
        let target = profile.parent().expect("target/debug");
        let mut cargo = Command::new(env!("CARGO"));
        // The whole workspace, as its tests are built: with other features everything would be compiled again.
        cargo
            .args([
                "build",
                "--quiet",
                "--workspace",
                "--examples",
                "--target-dir",
            ])
            .arg(target);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        assert!(
            cargo.status().expect("cargo runs").success(),
            "the examples do not build"
        );
        profile.join("examples")
    })
}

fn example(name: &str) -> Command {
    let mut command = Command::new(examples().join(name));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// An example that runs. It is killed when its test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("it starts"))
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().expect("a child can be asked").is_none()
    }

    /// Waits until it has ended by itself. What it prints fits into a pipe.
    fn end(&mut self) -> Output {
        let began = Instant::now();
        while self.runs() {
            assert!(began.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
        let mut output = Output {
            status: self.0.wait().expect("it has ended"),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        let (stdout, stderr) = (self.0.stdout.as_mut(), self.0.stderr.as_mut());
        let stdout = stdout.expect("it is piped").read_to_end(&mut output.stdout);
        let stderr = stderr.expect("it is piped").read_to_end(&mut output.stderr);
        stdout.and(stderr).expect("pipes can be read");
        output
    }

    fn interrupt(&self) {
        let id = self.0.id().to_string();
        let kill = Command::new("kill").args(["-INT", &id]).status();
        assert!(kill.expect("kill is there").success());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs an example to its end, which must be a good one, and gives what it prints.
fn run(name: &str, arguments: &[&str]) -> String {
    let output = Process::start(example(name).args(arguments)).end();
    good(name, &output)
}

fn good(name: &str, output: &Output) -> String {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{name}: {}\n{stdout}\n{stderr}",
        output.status
    );
    assert!(!stdout.contains('\u{1b}'), "colours in a pipe: {stdout:?}");
    stdout
}

/// The numbers in the row of a table that begins with that word.
fn numbers(output: &str, row: &str) -> Vec<i64> {
    let begins = |line: &&str| line.trim_start_matches(['│', ' ']).starts_with(row);
    let line = output
        .lines()
        .find(begins)
        .unwrap_or_else(|| panic!("no row {row} in\n{output}"));
    line.split(['│', '┆'])
        .filter_map(|cell| cell.trim().parse().ok())
        .collect()
}

/// The attempts in the table of a report: the action, the number, and what became of it.
fn attempts(output: &str) -> Vec<[&str; 3]> {
    let rows = output
        .lines()
        .skip_while(|line| !line.contains("attempt"))
        .skip(2)
        .take_while(|line| line.starts_with('│'));
    rows.map(|row| {
        let mut cells = row.trim_matches('│').split('┆').map(str::trim);
        std::array::from_fn(|_| cells.next().expect("three cells"))
    })
    .collect()
}

/// What stays of an output when paths, ids, times and numbers, and what their width does to a table, are taken away.
fn shape(output: &str) -> Vec<String> {
    let word = |word: &str| match word {
        word if word.contains(|c: char| c.is_ascii_digit() || c == '/') => "#".to_owned(),
        word if word.contains(['─', '═']) => "─".to_owned(),
        word => word.to_owned(),
    };
    let line = |line: &str| {
        line.split_whitespace()
            .map(word)
            .collect::<Vec<_>>()
            .join(" ")
    };
    output.lines().map(line).collect()
}

/// What the doc comment of an example shows behind that command.
fn shown(name: &str, command: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/examples");
    let source =
        std::fs::read_to_string(folder.join(name).with_extension("rs")).expect("an example");
    let docs: Vec<&str> = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let begin = docs.iter().position(|line| *line == command);
    let begin = begin.unwrap_or_else(|| panic!("{name} does not show `{command}`"));
    let output: Vec<&str> = docs[begin + 1..]
        .iter()
        .take_while(|line| **line != "```")
        .copied()
        .collect();
    output.join("\n")
}

#[test]
fn the_docs_show_what_is_printed() {
    let folder = TempDir::new().expect("a temporary folder");
    for name in ["bank_transfer", "charge_card", "fan_out", "typed_dag"] {
        let output = Process::start(example(name).current_dir(folder.path())).end();
        let printed = good(name, &output);
        let shown = shown(name, &format!("$ cargo run --example {name}"));
        assert_eq!(
            shape(&printed),
            shape(&shown),
            "printed:\n{printed}\nshown:\n{shown}"
        );
    }
    assert!(
        folder.path().join("bank.db").is_file(),
        "the bank is where the docs say"
    );
}

#[test]
fn the_examples_are_short() {
    for name in [
        "bank_transfer",
        "charge_card",
        "fan_out",
        "typed_dag",
        "worker_and_client",
        "add_friend",
        "all_or_nothing",
        "two_phase_commit",
        "transactional",
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/examples");
        let source =
            std::fs::read_to_string(folder.join(name).with_extension("rs")).expect("an example");
        assert!(
            source.lines().count() <= 150,
            "{name} has {} lines",
            source.lines().count()
        );
    }
}

async fn transfers_leave_the_sum_as_it_is(place: Place) {
    let uri = place.uri();
    let output = run("bank_transfer", &["--uri", &uri]);
    assert_eq!(numbers(&output, "alice"), [10_000, 9_950], "{output}");
    assert_eq!(numbers(&output, "bob"), [10_000, 10_050], "{output}");
    assert_eq!(numbers(&output, "sum"), [20_000, 20_000], "{output}");
    assert!(output.contains(" is completed\n"), "{output}");
    assert!(!output.contains("an earlier run left"), "{output}");
    for action in ["debit", "credit"] {
        assert_eq!(
            numbers(&output, action),
            [1],
            "one attempt of {action}\n{output}"
        );
    }
    // The other way round.
    let output = run("bank_transfer", &["--uri", &uri, "--transfers", "2"]);
    assert_eq!(numbers(&output, "alice"), [9_950, 9_970], "{output}");
    assert_eq!(numbers(&output, "sum"), [20_000, 20_000], "{output}");
}

async fn a_killed_transfer_is_finished_by_the_next_run(place: Place) {
    let uri = place.uri();
    let arguments = ["--uri", &uri, "--transfers", "1"];
    let mut doomed = example("bank_transfer");
    doomed.args(arguments).args(["--kill-after", "debit"]);
    let killed = Process::start(&mut doomed).end();
    assert_eq!(
        killed.status.code(),
        None,
        "it ended by a signal: {}",
        text(&killed.stdout)
    );
    assert!(
        text(&killed.stderr).contains("killed after debit"),
        "{}",
        text(&killed.stderr)
    );

    let output = run("bank_transfer", &arguments);
    assert!(
        output.contains("finishing what an earlier run left: 1\n"),
        "{output}"
    );
    // 10 were taken and not brought yet; then they were, and 10 went back.
    assert_eq!(numbers(&output, "sum"), [19_990, 20_000], "{output}");
    assert_eq!(numbers(&output, "alice"), [9_990, 10_000], "{output}");
    let expected = [
        ["debit", "1", "abandoned"],
        ["debit", "2", "yes"],
        ["credit", "1", "yes"],
    ];
    assert_eq!(attempts(&output), expected, "{output}");
}

async fn what_an_account_does_not_hold_is_not_transferred(place: Place) {
    let output = run(
        "bank_transfer",
        &["--uri", &place.uri(), "--transfers", "1003"],
    );
    let refused = "was undone, since `debit` failed: `alice` holds 0, which is less than 10";
    assert_eq!(output.matches(refused).count(), 3, "{output}");
    assert_eq!(numbers(&output, "alice"), [10_000, 0], "{output}");
    assert_eq!(numbers(&output, "sum"), [20_000, 20_000], "{output}");
}

/// Kills the process in the middle of a charge, and gives what the next run prints.
fn charge_after_a_kill(place: &Place, moment: &str) -> String {
    let uri = place.uri();
    let mut doomed = example("charge_card");
    doomed.args(["--uri", &uri, "--kill-in", "charge", "--moment", moment]);
    let killed = Process::start(&mut doomed).end();
    assert_eq!(
        killed.status.code(),
        None,
        "it ended by a signal: {}",
        text(&killed.stdout)
    );
    assert!(
        text(&killed.stderr).contains("killed in charge"),
        "{}",
        text(&killed.stderr)
    );
    let output = run("charge_card", &["--uri", &uri]);
    assert!(
        output.contains("an earlier run left an order in doubt; `was_charged` is asked"),
        "{output}"
    );
    assert!(output.contains("shipped, 25 were paid\n"), "{output}");
    assert!(output.contains(CHARGED_ONCE), "{output}");
    output
}

const CHARGED_ONCE: &str = "the card service was asked to charge it: 1; charges: 1\n";

async fn a_charge_that_was_made_in_doubt_is_found_and_not_made_again(place: Place) {
    let output = charge_after_a_kill(&place, "after");
    let expected = [
        ["charge", "1", "abandoned"],
        ["charge (verify)", "1", "yes"],
        ["ship", "1", "yes"],
    ];
    assert_eq!(attempts(&output), expected, "{output}");
}

async fn a_charge_that_was_not_made_in_doubt_is_made(place: Place) {
    let output = charge_after_a_kill(&place, "before");
    let expected = [
        ["charge", "1", "abandoned"],
        ["charge (verify)", "1", "yes"],
        ["charge", "2", "yes"],
        ["ship", "1", "yes"],
    ];
    assert_eq!(attempts(&output), expected, "{output}");
}

async fn a_charge_is_tried_again_only_after_an_error_that_passes(place: Place) {
    let uri = place.uri();
    let output = run("charge_card", &["--uri", &uri, "--busy", "1"]);
    let expected = [
        ["charge", "1", "no"],
        ["charge", "2", "yes"],
        ["ship", "1", "yes"],
    ];
    assert_eq!(attempts(&output), expected, "{output}");
    assert!(output.contains(CHARGED_ONCE), "{output}");
    let output = run("charge_card", &["--uri", &uri, "--price", "2000"]);
    assert_eq!(attempts(&output), [["charge", "1", "no"]], "{output}");
    assert!(
        output.contains("failed: `charge`: the card is declined: 2000 is more than 1000\n"),
        "{output}"
    );
}

async fn a_worker_that_charges_ends_when_it_is_told_to(place: Place) {
    let uri = place.uri();
    let mut worker = Process::start(example("charge_card").args(["--uri", &uri, "--worker"]));
    let stdout = worker.0.stdout.as_mut().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines();
    let works = lines.any(|line| line.is_ok_and(|line| line.contains(" works; ")));
    assert!(works, "it ended before it was told to");
    // It says so just before it listens.
    thread::sleep(Duration::from_millis(300));
    worker.interrupt();
    let output = good("charge_card", &worker.end());
    assert!(output.ends_with("has ended\n"), "{output}");
}

async fn fan_out_overlaps_and_op_3_sees_all(place: Place) {
    let output = run("fan_out", &["--uri", &place.uri()]);
    assert!(
        output.contains("op-2.1 and op-2.2 overlapped: yes"),
        "{output}"
    );
    let shown = shown("fan_out", "$ cargo run --example fan_out");
    assert_eq!(shape(&output), shape(&shown), "{output}");
}

async fn typed_dag_gives_a_tuple(place: Place) {
    let output = run("typed_dag", &["--uri", &place.uri()]);
    let shown = shown("typed_dag", "$ cargo run --example typed_dag");
    assert_eq!(shape(&output), shape(&shown), "{output}");
}

async fn a_worker_does_what_clients_start(place: Place) {
    let uri = place.uri();
    let start = |arguments: &[&str]| {
        let mut command = example("worker_and_client");
        Process::start(command.args(["--uri", &uri]).args(arguments))
    };
    let mut client = start(&["client", "--jobs", "20"]);
    thread::sleep(Duration::from_millis(300));
    assert!(client.runs(), "nobody works yet, so it waits");
    let mut worker = start(&["worker", "--name", "bee"]);
    let output = good("client", &client.end());
    assert!(output.starts_with("20 jobs are stored after"), "{output}");
    assert_eq!(output.matches(" bee-").count(), 20, "{output}");
    assert_eq!(numbers(&output, "343"), [343, 3, 10], "{output}");

    worker.interrupt();
    let output = good("worker", &worker.end());
    assert!(
        output.starts_with("bee-") && output.contains("has ended"),
        "{output}"
    );
}

on_stores!(sqlite, mongodb:
    transfers_leave_the_sum_as_it_is,
    a_killed_transfer_is_finished_by_the_next_run,
    what_an_account_does_not_hold_is_not_transferred,
    a_charge_that_was_made_in_doubt_is_found_and_not_made_again,
    a_charge_that_was_not_made_in_doubt_is_made,
    a_charge_is_tried_again_only_after_an_error_that_passes,
    a_worker_that_charges_ends_when_it_is_told_to,
    fan_out_overlaps_and_op_3_sees_all,
    typed_dag_gives_a_tuple,
    a_worker_does_what_clients_start,
);

#[test]
fn a_uri_that_means_nothing_is_refused_with_what_is_accepted() {
    for name in ["bank_transfer", "charge_card", "fan_out"] {
        let uri = "postgres://me:secret@host/db";
        let output = Process::start(example(name).args(["--uri", uri])).end();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
        assert!(
            stderr.contains("mongodb://host/database") && !stderr.contains("secret"),
            "{name}: {stderr}"
        );
    }
}
