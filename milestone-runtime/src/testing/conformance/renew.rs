//! Leases that go on.

use super::bench::{Bench, LEASE, commit, pause, release, set};
use crate::store::{Committed, RenewRequest, Sent};

pub(super) async fn prolongs_a_lease(bench: Bench) {
    let record = bench.held("one", "w1", "t1").await;
    let before = bench.raw("one").await;
    let until = bench.at(2 * LEASE);
    let renewed = bench.renew("w1", &[("one", "t1")], until).await;
    assert!(
        renewed.lost.is_empty() && renewed.mail.is_empty(),
        "{renewed:?}"
    );
    assert!(renewed.now >= bench.now, "it tells the time");
    let after = bench.get("one").await;
    assert_eq!(after.lease.as_ref().map(|lease| lease.until), Some(until));
    assert_eq!(after.next.as_ref().map(|next| next.at), Some(until));
    assert_eq!(
        (after.rev, after.epoch),
        (record.rev, record.epoch),
        "a renewal is no commit"
    );
    let mut raw = bench.raw("one").await;
    raw.insert("lease", before.get("lease").cloned().unwrap_or_default());
    raw.insert("next", before.get("next").cloned().unwrap_or_default());
    raw.insert("due", before.get("due").cloned().unwrap_or_default());
    super::bench::assert_same(&raw, &before);
    assert!(bench.renew("w1", &[], until).await.lost.is_empty());
}

pub(super) async fn never_shortens(bench: Bench) {
    bench.held("one", "w1", "t1").await;
    let before = bench.raw("one").await;
    let renewed = bench
        .renew("w1", &[("one", "t1")], bench.at(LEASE - 1))
        .await;
    assert!(renewed.lost.is_empty());
    bench.assert_unchanged(&before).await;
}

pub(super) async fn revives_a_lease(bench: Bench) {
    let mut record = bench.record("one");
    let mut lease = bench.lease("w1", "t1");
    lease.until = bench.at(-LEASE);
    record.born_leased(lease);
    bench.insert(vec![record]).await;
    assert!(
        bench
            .renew("w1", &[("one", "t1")], bench.at(LEASE))
            .await
            .lost
            .is_empty(),
        "nobody took it"
    );
    let mut request = bench.request("w2", 1);
    request.expired_before = Some(bench.now);
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
}

pub(super) async fn tells_the_lost_one_by_one(bench: Bench) {
    for (id, owner, token) in [
        ("a", "w1", "ta"),
        ("b", "w2", "tb"),
        ("c", "w1", "tc"),
        ("d", "w1", "td"),
        ("e", "w1", "te"),
    ] {
        bench.held(id, owner, token).await;
    }
    bench.insert(vec![bench.record("free")]).await;
    assert!(
        bench
            .store
            .remove("c".into())
            .await
            .expect("a removal is answered")
    );
    let back = bench.get("d").await;
    assert!(matches!(
        bench.commit(commit(&back, release(bench.now, 0))).await,
        Committed::Done
    ));
    let until = bench.at(2 * LEASE);
    let holds = [
        ("a", "ta"),
        ("b", "t?"),
        ("c", "tc"),
        ("d", "td"),
        ("e", "te"),
        ("free", "t?"),
        ("unknown", "t?"),
    ];
    let mut lost: Vec<String> = bench
        .renew("w1", &holds, until)
        .await
        .lost
        .iter()
        .map(ToString::to_string)
        .collect();
    lost.sort();
    assert_eq!(lost, ["b", "c", "d", "free", "unknown"]);
    for (id, end) in [("a", until), ("b", bench.at(LEASE)), ("e", until)] {
        assert_eq!(
            bench.get(id).await.lease.map(|lease| lease.until),
            Some(end),
            "{id}"
        );
    }
}

pub(super) async fn tells_of_mail(bench: Bench) {
    for (id, token) in [("a", "ta"), ("b", "tb"), ("c", "tc")] {
        bench.held(id, "w1", token).await;
    }
    for (id, command) in [("a", "c1"), ("a", "c2"), ("c", "c3"), ("c", "c3")] {
        bench.send(id, bench.command(command, pause(), 0)).await;
    }
    let holds = [("a", "ta"), ("b", "tb"), ("c", "t?")];
    let renewed = bench.renew("w1", &holds, bench.at(LEASE)).await;
    assert_eq!(renewed.mail, [("a".into(), 2)]);
    assert_eq!(renewed.lost, ["c".into()]);
    assert_eq!(
        bench
            .renew("w1", &[("c", "tc")], bench.at(LEASE))
            .await
            .mail,
        [("c".into(), 1)]
    );
}

pub(super) async fn keeps_others_away(bench: Bench) {
    bench.held("one", "w1", "t1").await;
    bench
        .renew("w1", &[("one", "t1")], bench.at(3 * LEASE))
        .await;
    let mut request = bench.request("w2", 1);
    request.now = bench.at(2 * LEASE);
    request.until = bench.at(4 * LEASE);
    request.expired_before = Some(bench.at(2 * LEASE));
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    request.now = bench.at(3 * LEASE + 2);
    request.expired_before = Some(bench.at(3 * LEASE + 1));
    assert_eq!(bench.claimed_ids(&request).await, ["one"]);
}

/// Renewals, commits and commands of one milestone at once: none undoes what another has done.
pub(super) async fn beside_commits_and_commands(bench: Bench) {
    const ROUNDS: i64 = 20;
    let record = bench.held("one", "w1", "t1").await;
    let (renewing, sending) = (bench.subject.store().await, bench.subject.store().await);
    let until = |round: i64| bench.at(LEASE + round);
    let renewals = async {
        for round in 1..=ROUNDS {
            let holds = vec![("one".into(), "t1".to_owned())];
            let request = RenewRequest {
                owner: "w1".to_owned(),
                holds,
                until: until(round),
            };
            let renewed = renewing
                .renew(request)
                .await
                .expect("a renewal is answered");
            assert!(renewed.lost.is_empty(), "round {round}");
        }
    };
    let commands = async {
        for round in 1..=ROUNDS {
            let command = bench.command(&format!("c{round}"), pause(), 0);
            let sent = sending
                .send("one".into(), command)
                .await
                .expect("a command is answered");
            assert_eq!(sent, Sent::Delivered);
        }
    };
    let commits = async {
        let mut record = record.clone();
        for round in 1..=ROUNDS {
            let told = bench
                .commit(commit(&record, set("actions.0.attempts", round)))
                .await;
            assert!(matches!(told, Committed::Done), "round {round}: {told:?}");
            record.rev += 1;
        }
    };
    tokio::join!(renewals, commands, commits);
    let after = bench.get("one").await;
    assert_eq!(after.lease.map(|lease| lease.until), Some(until(ROUNDS)));
    assert_eq!(after.next.map(|next| next.at), Some(until(ROUNDS)));
    assert_eq!(
        (after.rev, after.actions[0].attempts),
        (record.rev + ROUNDS, ROUNDS)
    );
    assert_eq!(
        (after.mail, after.inbox.len() as u64),
        (ROUNDS, ROUNDS.unsigned_abs())
    );
}
