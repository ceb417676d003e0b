//! Runs the tool.

use std::{path::Path, process::Stdio};

use milestone_tests::place::Place;
use serde_json::Value;
use tokio::process::Command;

/// The binary, on the place of a test.
pub(crate) struct Tool {
    uri: Option<String>,
}

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Tool {
    pub(crate) fn new(place: &Place) -> Self {
        Self::at(place.uri())
    }

    pub(crate) fn at(uri: impl Into<String>) -> Self {
        Self {
            uri: Some(uri.into()),
        }
    }

    /// Without a database.
    pub(crate) const fn nowhere() -> Self {
        Self { uri: None }
    }

    /// A run that is not begun yet, with no terminal.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_milestone"));
        command
            .args(arguments)
            .stdin(Stdio::null())
            .env("USER", "ann")
            .env_remove("MILESTONE_URI")
            .env_remove("MILESTONE_COLLECTION")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .kill_on_drop(true);
        if let Some(uri) = &self.uri {
            command.env("MILESTONE_URI", uri);
        }
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Run {
        let output = self.command(arguments).output().await.unwrap();
        Run {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A run that ends well; what it says on its output.
    pub(crate) async fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
        run.out
    }

    /// The documents of a run that ends well and gives one a line.
    pub(crate) async fn documents(&self, arguments: &[&str]) -> Vec<Value> {
        let out = self.ok(arguments).await;
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The ids that `list` gives, with further arguments.
    pub(crate) async fn listed(&self, arguments: &[&str]) -> Vec<String> {
        let arguments = [&["list", "--json"], arguments].concat();
        let documents = self.documents(&arguments).await;
        documents.iter().map(id).collect()
    }
}

impl Run {
    /// Checks the exit code, and that all of these texts were said.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for text in texts {
            assert!(
                self.out.contains(text) || self.err.contains(text),
                "`{text}` is not in {self:?}"
            );
        }
    }
}

/// The id of a document.
pub(crate) fn id(document: &Value) -> String {
    let id = &document["_id"];
    let text = id.as_str().or_else(|| id["$oid"].as_str());
    text.unwrap().to_owned()
}

/// A URI of a file.
pub(crate) fn sqlite(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}
