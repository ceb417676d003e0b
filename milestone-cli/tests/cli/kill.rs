//! A worker process is killed in the middle of an action that must not run twice; the tool says so, and ends it.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use milestone_runtime::{
    Method, Runtime, RuntimeBuilder, Status,
    action::{ActionError, Options},
    core::record::MilestoneId,
    dynamic::Action,
};
use milestone_tests::{
    look::{action, until, until_true},
    on_stores,
    place::{Kind, Place, bare},
};

use crate::tool::Tool;

on_stores!(sqlite, mongodb: a_plain_action_killed_in_its_middle_is_resolved_both_ways);

/// In a worker process that is to be killed: the URI, and the file that tells that the action is in its middle.
const URI: &str = "MILESTONE_CLI_TEST_VICTIM";
const MARK: &str = "MILESTONE_CLI_TEST_MARK";

const SETTLE: Duration = Duration::from_millis(1_500);

fn worker(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.lease(Duration::from_millis(500)).settle(SETTLE)
}

/// The victim: its `charge` begins and never ends.
async fn hang(uri: String) {
    let mark = env::var(MARK).unwrap();
    let charge = Method::new("charge", move |_| {
        std::fs::write(&mark, "begun").unwrap();
        std::future::pending::<Result<i32, ActionError>>()
    });
    let builder = worker(bare(uri)).register(charge.options(Options::plain()));
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    std::future::pending::<()>().await;
}

/// The same test in a process of its own, which knows by its environment that it is the victim.
fn victim(place: &Place, mark: &Path) -> std::process::Child {
    let module = match place.kind() {
        Kind::MongoDb => "mongodb",
        _ => "sqlite",
    };
    let name = "a_plain_action_killed_in_its_middle_is_resolved_both_ways";
    Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("kill::{module}::{name}")])
        .env(URI, place.uri())
        .env(MARK, mark)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn start(runtime: &Runtime, id: &str) -> MilestoneId {
    let graph = Action::new("charge");
    let handle = runtime.start("Order", graph, ()).id(id).await.unwrap();
    handle.id().clone()
}

async fn a_plain_action_killed_in_its_middle_is_resolved_both_ways(place: Place) {
    if let Ok(uri) = env::var(URI) {
        return hang(uri).await;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let client = place.builder().client().build().await.unwrap();
    for id in ["did", "did-not"] {
        start(&client, id).await;
        let mark = folder.path().join(id);
        let mut victim = victim(&place, &mark);
        until_true("the action is in its middle", || mark.exists()).await;
        victim.kill().unwrap();
        victim.wait().unwrap();
    }

    // Another worker takes over, and runs none of them by itself.
    let charge = Method::new("charge", |call| async move {
        Ok::<_, ActionError>(call.context().attempt())
    });
    let builder = worker(place.builder()).register(charge.options(Options::plain()));
    let runtime = builder.build().await.unwrap();
    runtime.spawn();
    let tool = Tool::new(&place);
    for id in ["did", "did-not"] {
        let record = until(&runtime, &id.into(), |record| {
            record.state == Status::InDoubt
        })
        .await;
        assert_eq!(action(&record, "charge").attempts, 1);
        let page = tool.ok(&["show", id]).await;
        for text in [
            "`charge` is in doubt: attempt 1 was cut off when its worker died",
            &format!("milestone resolve {id} charge --applied --output"),
            &format!("milestone resolve {id} charge --not-applied"),
            "`--not-applied` is safe",
            "? charge  in_doubt",
            "charge #1  abandoned",
        ] {
            assert!(page.contains(text), "`{text}` is not in {page}");
        }
    }

    let run = tool
        .run(&[
            "resolve",
            "did",
            "charge",
            "--applied",
            "--output",
            "\"receipt\"",
        ])
        .await;
    run.expect(0, &["did: resolve done, it took effect"]);
    let record = until(&runtime, &"did".into(), |record| {
        record.state == Status::Completed
    })
    .await;
    assert_eq!(action(&record, "charge").output, Some("receipt".into()));
    assert_eq!(action(&record, "charge").attempts, 1);

    // As `show` says, the other answer is refused until it is safe.
    loop {
        let run = tool
            .run(&["resolve", "did-not", "charge", "--not-applied"])
            .await;
        if run.code == 0 {
            break;
        }
        run.expect(4, &["may still take effect"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let record = until(&runtime, &"did-not".into(), |record| {
        record.state == Status::Completed
    })
    .await;
    assert_eq!(action(&record, "charge").output, Some(2_i64.into()));
    runtime.shutdown().await;
}
