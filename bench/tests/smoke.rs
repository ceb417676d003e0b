//! Every part of the benchmark works on the server of the tests. The figures of such small sizes mean nothing, so none is judged.

use std::{env, fs, process::Command};

use serde_json::Value;

/// The parts, and how many rows each has at the least.
const PARTS: [(&str, usize); 9] = [
    ("throughput", 4),
    ("latency", 2),
    ("chain", 4),
    ("fan-out", 2),
    ("hints", 3),
    ("backlog", 7),
    ("idle", 5),
    ("memory", 5),
    ("commands", 4),
];

#[test]
fn every_part_gives_figures() {
    let uri = env::var("MILESTONE_TEST_URI")
        .ok()
        .filter(|uri| !uri.is_empty())
        .expect("MILESTONE_TEST_URI is not set: run `cargo xtask test`");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures/bench.json");
    let output = Command::new(env!("CARGO_BIN_EXE_milestone-bench"))
        .args(["--smoke", "--uri", &uri, "--json"])
        .arg(&file)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["conditions"]["size"], "smoke");
    assert!(report["conditions"]["cores"].as_u64() > Some(0));
    let rows = report["rows"].as_array().unwrap();
    for (part, least) in PARTS {
        let of_part = rows.iter().filter(|row| row["part"] == part).count();
        assert!(of_part >= least, "{part} has {of_part} rows:\n{said}");
    }
    for row in rows {
        let name = row["name"].as_str().unwrap();
        assert!(printed.contains(name), "{name} is not in the table");
        // What is no number is null in JSON.
        let figure = |key: &str| row[key].as_f64().is_some_and(f64::is_finite);
        assert!(figure("ours"), "{row}");
        if !row["floor"].is_null() || !row["ratio"].is_null() {
            assert!(figure("floor") && figure("ratio"), "{row}");
            assert!(row["floor"].as_f64() > Some(0.0), "{row}");
            assert!(row["ours"].as_f64() > Some(0.0), "{row}");
        }
    }
}
