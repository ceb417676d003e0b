//! Nobody writes who does not hold the milestone.

use std::sync::Arc;

use bson::DateTime;
use milestone_core::record::MilestoneRecord;

use super::bench::{Bench, LEASE, commit, end, release, set};
use crate::store::{Commit, Committed, RenewRequest};

/// Every way to write to a milestone under a lease must fail and leave it as it is.
async fn assert_shut_out(bench: &Bench, record: &MilestoneRecord, token: &str, rev: i64) {
    let before = bench.raw(record.id.clone()).await;
    for patch in [
        set("state", "running"),
        release(bench.now, record.mail),
        end(record.mail),
    ] {
        let told = bench
            .commit(Commit {
                token: token.to_owned(),
                rev,
                ..commit(record, patch.clone())
            })
            .await;
        assert!(
            matches!(told, Committed::Lost),
            "{told:?} with token {token}, rev {rev}, {patch:?}"
        );
    }
    bench.assert_unchanged(&before).await;
}

async fn assert_renewal_lost(bench: &Bench, record: &MilestoneRecord, token: &str) {
    let before = bench.raw(record.id.clone()).await;
    let holds = vec![(record.id.clone(), token.to_owned())];
    let request = RenewRequest {
        owner: "w1".to_owned(),
        holds,
        until: bench.at(9 * LEASE),
    };
    let renewed = bench
        .store
        .renew(request)
        .await
        .expect("a renewal is answered");
    assert_eq!(
        renewed.lost,
        std::slice::from_ref(&record.id),
        "with token {token}"
    );
    bench.assert_unchanged(&before).await;
}

pub(super) async fn nobody_writes_with_a_wrong_token(bench: Bench) {
    let held = bench.held("held", "w1", "t1").await;
    for token in ["t2", ""] {
        assert_shut_out(&bench, &held, token, held.rev).await;
        assert_renewal_lost(&bench, &held, token).await;
    }
    // The free one is at the `rev` that the patch leads to, but not through it.
    let free = bench.record("free");
    bench.insert(vec![free.clone()]).await;
    for rev in [free.rev, free.rev + 1, free.rev - 2] {
        assert_shut_out(&bench, &free, "t1", rev).await;
    }
    assert_renewal_lost(&bench, &free, "t1").await;
}

pub(super) async fn nobody_writes_with_a_wrong_rev(bench: Bench) {
    let held = bench.held("held", "w1", "t1").await;
    for rev in [
        held.rev + 1,
        held.rev + 2,
        held.rev - 2,
        0,
        -1,
        i64::MAX - 1,
    ] {
        if rev + 1 != held.rev {
            assert_shut_out(&bench, &held, "t1", rev).await;
        }
    }
}

pub(super) async fn nobody_writes_after_a_takeover(bench: Bench) {
    let held = bench.held("held", "w1", "t1").await;
    let mut request = bench.request("w2", 1);
    request.now = bench.at(LEASE + 2);
    request.until = bench.at(3 * LEASE);
    request.expired_before = Some(bench.at(LEASE + 1));
    let taken = bench.claim_all(&request).await.records.remove(0);
    assert_eq!(taken.epoch, held.epoch + 1);
    // The token of the old epoch, with the old and with the new `rev`.
    for rev in [held.rev, taken.rev] {
        assert_shut_out(&bench, &held, "t1", rev).await;
    }
    assert_renewal_lost(&bench, &held, "t1").await;
    // The new one writes, and hands back; the old one is as far from it as before.
    assert!(matches!(
        bench
            .commit(commit(&taken, release(bench.at(9 * LEASE), 0)))
            .await,
        Committed::Done
    ));
    // Not at `taken.rev`, where nobody can tell a patch that gives the lease up from the one that did: no worker has such a patch, since it
    // would have to hold the milestone then.
    for rev in [held.rev, taken.rev + 1] {
        assert_shut_out(&bench, &held, "t1", rev).await;
    }
    assert_renewal_lost(&bench, &held, "t1").await;
}

/// F19: a milestone is removed while a worker has it.
pub(super) async fn nobody_writes_to_what_is_gone(bench: Bench) {
    let held = bench.held("held", "w1", "t1").await;
    assert!(
        bench
            .store
            .remove("held".into())
            .await
            .expect("a removal is answered")
    );
    for patch in [set("state", "running"), release(bench.now, 0), end(0)] {
        assert!(matches!(
            bench.commit(commit(&held, patch)).await,
            Committed::Lost
        ));
    }
    assert_eq!(
        bench
            .renew("w1", &[("held", "t1")], bench.at(LEASE))
            .await
            .lost,
        ["held".into()]
    );
    assert!(
        bench.subject.raw("held".into()).await.is_none(),
        "nothing comes back"
    );
    // Another one of the same name is not the one that the worker held.
    bench.insert(vec![bench.record("held")]).await;
    assert_shut_out(&bench, &held, "t1", held.rev).await;
}

/// A holder that renews and writes, while others take the milestone whenever its lease seems to have ended: in every round one of them
/// holds it, and the others know.
pub(super) async fn a_holder_and_takers(bench: Bench) {
    let mut holder = bench.held("fought", "w0", "t0").await;
    let second = bench.subject.store().await;
    for round in 1..=15_i64 {
        let end_of_lease = holder.lease.as_ref().map_or(bench.now, |lease| lease.until);
        let later = |millis: i64| DateTime::from_millis(end_of_lease.timestamp_millis() + millis);
        let takers: Vec<_> = (0..3)
            .map(|taker| {
                let mut request = bench.request(&format!("w{round}-{taker}"), 1);
                (request.now, request.until) = (later(2), later(100 + taker));
                request.expired_before = Some(later(1));
                let store = if taker % 2 == 0 {
                    Arc::clone(&bench.store)
                } else {
                    Arc::clone(&second)
                };
                tokio::spawn(async move {
                    store
                        .claim(request)
                        .await
                        .expect("a claim is answered")
                        .records
                })
            })
            .collect();
        let token = holder
            .lease
            .as_ref()
            .map(|lease| lease.token.clone())
            .unwrap_or_default();
        let request = RenewRequest {
            owner: "holder".to_owned(),
            holds: vec![(holder.id.clone(), token.clone())],
            until: later(50),
        };
        let (renewed, written) = tokio::join!(
            bench.store.renew(request),
            second.commit(vec![commit(&holder, set("losses", round))])
        );
        let renewed = renewed.expect("a renewal is answered");
        let written = written.expect("a commit is answered");
        let mut winners = Vec::new();
        for taker in takers {
            winners.extend(taker.await.expect("the task ends"));
        }
        assert!(winners.len() <= 1, "taken by two: {winners:?}");
        let stored = bench.get("fought").await;
        if let Some(taken) = winners.pop() {
            assert_eq!(stored, taken, "nobody has written to it since it was taken");
            assert_renewal_lost(&bench, &holder, &token).await;
        } else {
            assert!(renewed.lost.is_empty(), "nobody took it, so it is not lost");
            assert!(matches!(written[..], [Committed::Done]), "{written:?}");
            assert_eq!(stored.epoch, holder.epoch);
        }
        holder = stored;
    }
}
