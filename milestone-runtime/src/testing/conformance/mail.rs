//! Commits that must not overlook a command.

use super::bench::{Bench, commit, end, pause, release, set};
use crate::store::{Commit, Committed};

pub(super) async fn guards_a_commit(bench: Bench) {
    let record = bench.held("one", "w1", "t1").await;
    bench.send("one", bench.command("c1", pause(), 0)).await;
    let before = bench.raw("one").await;
    for patch in [release(bench.now, 0), end(0)] {
        match bench.commit(commit(&record, patch)).await {
            Committed::Mail(seen) => {
                assert_eq!((seen.mail, seen.inbox.len(), seen.rev), (1, 1, record.rev));
                assert_eq!(seen.inbox[0], bench.command("c1", pause(), 0));
            }
            other => panic!("{other:?}"),
        }
        bench.assert_unchanged(&before).await;
    }
    assert!(matches!(
        bench.commit(commit(&record, end(1))).await,
        Committed::Done
    ));
    assert_eq!(bench.get("one").await.lease, None);
}

pub(super) async fn does_not_hinder_what_is_not_guarded(bench: Bench) {
    let record = bench.held("one", "w1", "t1").await;
    bench.send("one", bench.command("c1", pause(), 0)).await;
    assert!(matches!(
        bench.commit(commit(&record, set("state", "running"))).await,
        Committed::Done
    ));
    let after = bench.get("one").await;
    assert_eq!(
        (after.state.as_str(), after.mail, after.inbox.len()),
        ("running", 1, 1)
    );
    // Who has lost the lease is told that, not of mail.
    let told = bench
        .commit(Commit {
            token: "t2".to_owned(),
            ..commit(&after, end(0))
        })
        .await;
    assert!(matches!(told, Committed::Lost), "{told:?}");
}

pub(super) async fn does_not_hinder_a_repeated_commit(bench: Bench) {
    for (id, patch) in [("kept", with_guard()), ("back", release(bench.now, 0))] {
        let record = bench.held(id, "w1", "t1").await;
        let same = commit(&record, patch);
        assert!(matches!(bench.commit(same.clone()).await, Committed::Done));
        bench.send(id, bench.command("c1", pause(), 0)).await;
        let told = bench.commit(same).await;
        assert!(
            matches!(told, Committed::Done),
            "{id} was done before the mail came: {told:?}"
        );
        assert_eq!(bench.get(id).await.rev, record.rev + 1);
    }
}

fn with_guard() -> milestone_core::patch::Patch {
    milestone_core::patch::Patch::for_tests(
        vec![("state".to_owned(), "running".into())],
        Vec::new(),
        Some(0),
        false,
    )
}
