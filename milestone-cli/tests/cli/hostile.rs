//! Ids, names and errors that nobody would choose: what is said of them neither acts on a terminal nor breaks when it is pasted.

use std::time::Duration;

use milestone_runtime::{
    Method, Runtime, Status,
    action::{ActionError, Options},
    dynamic::Action,
};
use milestone_tests::{
    look::{action, until},
    on_stores,
    place::Place,
};
use tokio::process::Command;

use crate::tool::{Run, Tool, id};

on_stores!(sqlite, mongodb:
    what_is_printed_can_be_pasted,
    nothing_acts_on_the_terminal,
    an_output_that_cannot_be_stored_is_a_usage_error,
);

/// A worker with `-charge`, whose first attempt is in doubt.
async fn doubting(place: &Place) -> Runtime {
    let charge = Method::new("-charge", |call| async move {
        if call.context().attempt() > 1 {
            return Ok(2);
        }
        std::future::pending::<()>().await;
        Err(ActionError::new("never"))
    });
    let options = Options::plain().timeout(Duration::from_millis(50));
    let runtime = place
        .builder()
        .settle(Duration::from_mins(10))
        .register(charge.options(options))
        .build()
        .await
        .unwrap();
    runtime.spawn();
    runtime
}

/// What a shell makes of a line that was printed.
async fn pasted(tool: &Tool, line: &str) -> Run {
    let mut command: Command = tool.command(&[]);
    let program = command.as_std().get_program().to_owned();
    let mut shell = Command::new("bash");
    let script = format!("milestone() {{ \"$PROGRAM\" \"$@\"; }}\n{line}");
    shell.args(["-c", &script]).env("PROGRAM", program);
    for (name, value) in command.as_std().get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    command = shell;
    let output = command.output().await.unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What is printed behind a text.
fn behind<'t>(page: &'t str, text: &str) -> &'t str {
    let line = page.lines().find_map(|line| line.split_once(text));
    line.unwrap_or_else(|| panic!("`{text}` is not in {page}"))
        .1
        .trim()
}

async fn what_is_printed_can_be_pasted(place: Place) {
    let runtime = doubting(&place).await;
    let tool = Tool::new(&place);
    for id in ["-order", "--", "-it's\n\u{1b}[31m7"] {
        let start = runtime.start("Order", Action::new("-charge"), ());
        let handle = start.id(id).await.unwrap();
        until(&runtime, handle.id(), |record| {
            record.state == Status::InDoubt
        })
        .await;
        let page = tool.ok(&["show", "--", id]).await;
        let run = pasted(&tool, behind(&page, "it did not:")).await;
        run.expect(4, &["may still take effect"]);
        let run = tool.run(&["pause", "--", id]).await;
        run.expect(0, &["pause done"]);
        let page = tool.ok(&["show", "--", id]).await;
        let run = pasted(&tool, behind(&page, "until: ")).await;
        run.expect(0, &["it goes on"]);
        let line = behind(&page, "it did: ").replace("<what it gave, as JSON>", "7");
        pasted(&tool, &line).await.expect(0, &["it took effect"]);
        let output = handle.outcome().await.unwrap();
        assert_eq!(output, bson::doc! { "-charge": 7 });
    }
    let run = tool.run(&["list", "--limit", "2"]).await;
    let more = behind(&run.err, "list ..").split_once(", or").unwrap().0;
    let rest = pasted(&tool, &format!("milestone list --json {more}")).await;
    assert_eq!(rest.out.lines().count(), 1, "{rest:?}");
    runtime.shutdown().await;
}

async fn nothing_acts_on_the_terminal(place: Place) {
    const BAD: &str = "\u{1b}[2J\u{9b}31m\r\u{7}x";
    let fail = Method::new("fail", |_| async {
        Err::<(), _>(ActionError::fatal(format!("{BAD}\nsecond")))
    });
    let builder = place.builder().register(fail);
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let ids = [format!("a\n{BAD}"), "long-".repeat(30)];
    for id in &ids {
        let start = runtime.start(&format!("Kind{BAD}"), Action::new("fail"), BAD);
        let start = start.id(id.as_str()).label("customer", BAD);
        let handle = start.await.unwrap();
        until(&runtime, handle.id(), |record| {
            record.state == Status::Failed
        })
        .await;
        let record = handle.record().await.unwrap();
        assert_eq!(action(&record, "fail").attempts, 1);
    }
    let tool = Tool::new(&place);
    let harmless = |text: &str| {
        let acts = |char: char| char.is_control() && char != '\n';
        assert!(!text.chars().any(acts), "{text:?}");
    };
    for arguments in [
        &["list"][..],
        &["stats"],
        &["doctor"],
        &["show", &ids[0]],
        &["show", "--full", &ids[0]],
        &["graph", &ids[0]],
        &["retry", &ids[0]],
        &["remove", &ids[0]],
        &["waive", &ids[0], BAD],
        &["resolve", &ids[0], BAD, "--applied", "--output", "1"],
    ] {
        let run = tool.run(arguments).await;
        harmless(&run.out);
        if run.code != 2 {
            harmless(&run.err);
        }
    }
    let page = tool.ok(&["show", &ids[0]]).await;
    assert!(
        page.starts_with(r#""a\n\u001b[2J\u009b31m\r\u0007x"  Kind\u{1b}[2J"#),
        "{page}"
    );
    let listed = tool.ok(&["list"]).await;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(
        !listed.contains(&ids[1]) && listed.contains("long-…ong-"),
        "{listed}"
    );
    assert!(tool.ok(&["show", &ids[1]]).await.contains(&ids[1]));
    let mut told: Vec<String> = tool
        .documents(&["list", "--json"])
        .await
        .iter()
        .map(id)
        .collect();
    told.sort();
    assert_eq!(told, ids);
    runtime.shutdown().await;
}

async fn an_output_that_cannot_be_stored_is_a_usage_error(place: Place) {
    let runtime = doubting(&place).await;
    let start = runtime.start("Order", Action::new("-charge"), ());
    let handle = start.id("order").await.unwrap();
    until(&runtime, handle.id(), |record| {
        record.state == Status::InDoubt
    })
    .await;
    let tool = Tool::new(&place);
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("output.json").display().to_string();
    // A letter of two bytes lies across the end of what is read.
    std::fs::write(&file, format!("\"{}\"", "ä".repeat(700_000))).unwrap();
    for (output, text) in [
        (["--output", "123456789012345678901234567890"], "64 bits"),
        (["--output-file", &file], "more than 1114112 bytes"),
        (["--output-file", "/dev/zero"], "more than 1114112 bytes"),
    ] {
        let end = ["--", "order", "-charge"];
        let arguments = [&["resolve", "--applied"], &output[..], &end[..]].concat();
        tool.run(&arguments).await.expect(2, &[text]);
    }
    let record = handle.record().await.unwrap();
    assert_eq!(record.state, Status::InDoubt);
    runtime.shutdown().await;
}
