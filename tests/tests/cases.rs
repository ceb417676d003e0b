//! Every case that tests are owed for has one that carries its number, in its name or in its doc comment, so that none vanishes silently.
//! docs/cases.md says where they are; `MILESTONE_UPDATE=1` writes it anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The cases, as letters and ranges.
const OWED: [(char, u32, u32); 2] = [('F', 1, 45), ('S', 1, 32)];

/// Where tests are.
const FOLDERS: [&str; 7] = [
    "examples",
    "milestone-cli",
    "milestone-core",
    "milestone-macros",
    "milestone-runtime",
    "tests",
    "xtask",
];

const TABLE: &str = "docs/cases.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the folder of the workspace")
        .to_owned()
}

/// All sources below a folder but this one.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a folder is read").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with(file!()) {
            found.push(path);
        }
    }
}

/// The cases that a word begins with: `F07` and `F08` of `f07_f08_a_lease`, `F07` of `F07:`.
fn cases(word: &str) -> impl Iterator<Item = String> {
    let parts = word.split('_');
    parts.map_while(|part| {
        let (letter, digits) = part.split_at_checked(1)?;
        let is_case = matches!(letter, "f" | "F" | "s" | "S")
            && digits.len() == 2
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_case.then(|| part.to_ascii_uppercase())
    })
}

/// The function that a line begins, if it begins one.
fn function(line: &str) -> Option<&str> {
    let (_, name) = line.split_once("fn ")?;
    name.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()
        .filter(|name| !name.is_empty())
}

/// The tests of a file by the cases that they carry.
fn tests(text: &str) -> BTreeSet<(String, String)> {
    let mut tests = BTreeSet::new();
    let mut told: Vec<String> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let words = trimmed.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if trimmed.starts_with("///") {
            told.extend(words.flat_map(cases));
        } else if !trimmed.starts_with("//") {
            // Also where a macro makes a test of a name.
            let named = words.filter(|word| word.starts_with(['f', 's']) && word.len() > 4);
            for word in named {
                tests.extend(cases(word).map(|case| (case, word.to_owned())));
            }
            if let Some(name) = function(trimmed) {
                tests.extend(told.drain(..).map(|case| (case, name.to_owned())));
            } else if !trimmed.starts_with('#') {
                told.clear();
            }
        }
    }
    tests
}

/// Case by case, the tests that carry it, with their files.
fn found() -> BTreeMap<String, BTreeSet<(String, String)>> {
    let root = root();
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root.join(folder), &mut files);
    }
    let mut found: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source is read");
        let name = file.strip_prefix(&root).expect("it is below the root");
        let name = name.display().to_string();
        for (case, test) in tests(&text) {
            found.entry(case).or_default().insert((name.clone(), test));
        }
    }
    found
}

fn owed() -> impl Iterator<Item = String> {
    OWED.into_iter()
        .flat_map(|(letter, first, last)| (first..=last).map(move |n| format!("{letter}{n:02}")))
}

/// A row for each case that is owed, and for each other one that there is.
fn table(found: &BTreeMap<String, BTreeSet<(String, String)>>) -> String {
    let mut text = "# Cases\n\nThe tests by the numbers of the cases that they carry.\n\n\
         | case | tests |\n|---|---|\n"
        .to_owned();
    for (case, tests) in found {
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (file, test) in tests {
            files.entry(file).or_default().push(test);
        }
        let files = files
            .into_iter()
            .map(|(file, tests)| format!("{file}: `{}`", tests.join("`, `")));
        let files: Vec<String> = files.collect();
        // Writing to a text cannot fail.
        let _ = writeln!(text, "| {case} | {} |", files.join("; "));
    }
    text
}

#[test]
fn every_case_has_a_test() {
    let found = found();
    let missing: Vec<_> = owed().filter(|case| !found.contains_key(case)).collect();
    assert!(missing.is_empty(), "no test carries {missing:?}");
}

#[test]
fn the_table_names_tests_that_there_are() {
    let found = found();
    let path = root().join(TABLE);
    if std::env::var_os("MILESTONE_UPDATE").is_some() {
        fs::write(&path, table(&found)).expect("the table is written");
    }
    let written = fs::read_to_string(&path).expect("the table is there");
    let rows: BTreeMap<&str, &str> = written
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| ")?
                .strip_suffix(" |")?
                .split_once(" | ")
        })
        .filter(|(case, _)| *case != "case")
        .collect();
    for case in owed().filter(|case| found.contains_key(case)) {
        assert!(rows.contains_key(&*case), "{TABLE} has no row for {case}");
    }
    for (case, row) in rows {
        let tests = &found[case];
        for named in row.split("; ") {
            let (file, names) = named.split_once(": ").expect("a file and its tests");
            for name in names.split(", ") {
                let test = (file.to_owned(), name.trim_matches('`').to_owned());
                assert!(
                    tests.contains(&test),
                    "{TABLE} says that {name} in {file} carries {case}: set MILESTONE_UPDATE=1 to write it anew"
                );
            }
        }
    }
}

#[test]
fn what_carries_a_number_is_found() {
    let text = "/// F05: it runs.\n/// Long.\n#[test]\nfn told() {}\n/// Other words\nfn f06_named() {}\n// F07 is no test\n\
                one: f08_f09_made, S09_no;\n/// F10: of no function\nstruct S;\nfn f1_no() {}\nlet x: f64 = s12;\n";
    let found: Vec<(String, String)> = tests(text).into_iter().collect();
    let expected = [
        ("F05", "told"),
        ("F06", "f06_named"),
        ("F08", "f08_f09_made"),
        ("F09", "f08_f09_made"),
    ];
    assert_eq!(
        found,
        expected.map(|(case, test)| (case.to_owned(), test.to_owned()))
    );
}
