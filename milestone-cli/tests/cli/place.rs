//! Where the tool works, what it says when it cannot, and how it is called.

use milestone_tests::{
    on_stores,
    place::{Kind, Place, run_async},
};
use tempfile::TempDir;

use crate::tool::{Tool, sqlite};

on_stores!(sqlite, mongodb: a_name_that_is_mistyped_makes_nothing);

async fn a_name_that_is_mistyped_makes_nothing(place: Place) {
    place.store().await;
    let tool = Tool::new(&place);
    tool.run(&["list"])
        .await
        .expect(0, &["there are no milestones"]);
    let run = tool.run(&["list", "--collection", "_milstones_"]).await;
    run.expect(1, &["there is no collection `_milstones_`", "mistyped"]);
    if let Some(scratch) = place.scratch() {
        let names = scratch.database().list_collection_names().await.unwrap();
        assert!(!names.contains(&"_milstones_".to_owned()), "{names:?}");
    }
    if place.kind() == Kind::Sqlite {
        let uri = place.uri().replace("bank.db", "bnak.db");
        let run = Tool::at(&uri).run(&["stats"]).await;
        run.expect(1, &["there is no collection `_milestones_` at", "bnak.db"]);
        let file = uri.strip_prefix("sqlite:").unwrap();
        assert!(!std::path::Path::new(file).exists());
    }
}

#[test]
fn a_command_line_that_is_wrong_is_a_usage_error() {
    run_async(async {
        let folder = TempDir::new().unwrap();
        let tool = Tool::at(sqlite(&folder.path().join("bank.db")));
        for arguments in [
            &[][..],
            &["lsit"],
            &["list", "--state", "sleeping"],
            &["list", "--created-after", "yesterday"],
            &["list", "--label", "customer"],
            &["show"],
            &["show", ""],
            &["resolve", "a", "b"],
            &["resolve", "a", "b", "--not-applied", "--output", "1"],
            &["graph"],
            &["graph", "a", "--format", "svg"],
            &["pause", "a", "--timeout", "long"],
        ] {
            let run = tool.run(arguments).await;
            assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        }
        let run = Tool::nowhere().run(&["list"]).await;
        run.expect(2, &["no database is named: set MILESTONE_URI"]);
    });
}

#[test]
fn a_database_that_cannot_be_used_is_an_error() {
    run_async(async {
        for (uri, text) in [
            ("memory:", "a store within one process"),
            ("postgres://ann:secret@host/bank", "is no store"),
            (
                "mongodb://ann:secret@127.0.0.1:9/bank?serverSelectionTimeoutMS=200",
                "cannot be reached",
            ),
        ] {
            let run = Tool::at(uri).run(&["list"]).await;
            run.expect(1, &["error:", text]);
            assert!(!run.err.contains("secret"), "{run:?}");
        }
    });
}

#[test]
fn help_states_the_exit_codes_and_hides_the_uri() {
    run_async(async {
        let tool = Tool::at("mongodb://ann:secret@host/bank");
        for arguments in [&["--help"][..], &["-h"]] {
            let help = tool.ok(arguments).await;
            for text in ["Exit codes:", "0  done", "6  `doctor`", "MILESTONE_URI"] {
                assert!(help.contains(text), "`{text}` is not in {help}");
            }
            assert!(!help.contains("secret"), "{help}");
        }
        for command in [
            "list", "show", "retry", "cancel", "pause", "resume", "resolve", "waive", "remove",
            "graph",
        ] {
            let help = tool.ok(&[command, "--help"]).await;
            assert!(
                help.contains("Examples:") && !help.contains("secret"),
                "{help}"
            );
        }
    });
}
