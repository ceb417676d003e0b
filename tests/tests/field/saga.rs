//! A saga that is undone, through a kill.

use std::process::Stdio;

use milestone_runtime::{
    OutcomeError,
    core::record::{ActionState, Attempt, AttemptKind, MilestoneRecord, Phase, Status, UndoState},
};
use milestone_tests::{
    checker::checked,
    ledger::Ledger,
    look::{action, attempts},
    on_stores,
    place::Place,
    saga,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use super::support::LEASE;

on_stores!(sqlite, mongodb: five_actions_are_undone_in_reverse_order_through_a_kill);

fn undos<'r>(record: &'r MilestoneRecord, name: &str) -> Vec<&'r Attempt> {
    let mut attempts = attempts(record, name);
    attempts.retain(|attempt| attempt.phase == Phase::Undo);
    attempts
}

/// The fourth of five actions fails for good, and what began is undone in reverse order. The undo of the third fails three times first; in
/// that of the second the worker is killed with SIGKILL, and another one goes on from there.
async fn five_actions_are_undone_in_reverse_order_through_a_kill(place: Place) {
    let client = place.builder().client().build().await.unwrap();
    let handle = client.start("saga", saga::graph(), ()).await.unwrap();
    let mut mortal = Command::new(env!("CARGO_BIN_EXE_mortal"))
        .args([&*place.uri(), "undo-2"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(mortal.stdout.take().unwrap()).lines();
    let mut begun = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        match line.strip_prefix("begins ") {
            Some(line) => begun.push(line.to_owned()),
            None => break,
        }
    }
    mortal.kill().await.unwrap();
    let expected = [
        "do-1 1", "do-2 1", "do-3 1", "do-4 1", "undo-4 1", "undo-3 1", "undo-3 2", "undo-3 3",
        "undo-3 4", "undo-2 1",
    ];
    assert_eq!(begun, expected);
    let record = handle.record().await.unwrap();
    assert_eq!(record.state, Status::Undoing);

    let ledger = Ledger::new();
    let noted = ledger.clone();
    let tell = move |name: &str, attempt| noted.note(format!("{name} {attempt}"));
    let mut builder = place.builder().lease(LEASE);
    for method in saga::methods(tell, None) {
        builder = builder.register(method);
    }
    let heir = builder.build().await.unwrap();
    heir.spawn();
    let error = handle.outcome().await.unwrap_err();
    assert!(matches!(error, OutcomeError::Undone { .. }), "{error}");
    assert_eq!(ledger.entries(), ["undo-2 2", "undo-1 1"]);

    let record = handle.record().await.unwrap();
    for (name, numbers) in [("do-1", 1), ("do-2", 2), ("do-3", 4), ("do-4", 1)] {
        let undo = action(&record, name).undo.as_ref().unwrap();
        assert_eq!((undo.state, undo.attempts), (UndoState::Done, numbers));
        let newest = undos(&record, name)[0].number;
        assert_eq!(newest, numbers);
    }
    assert_eq!(undos(&record, "do-2")[1].kind, Some(AttemptKind::Abandoned));
    let failed = undos(&record, "do-3");
    assert!(
        failed[1..]
            .iter()
            .all(|attempt| attempt.success == Some(false))
    );
    assert_eq!(action(&record, "do-5").state, ActionState::Skipped);
    checked(&client).await;
}
