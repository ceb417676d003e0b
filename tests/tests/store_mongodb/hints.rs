//! Hints from the change stream.

use std::time::Duration;

use futures_util::StreamExt as _;
use milestone_runtime::store::{Committed, Hint, Hints, RenewRequest, Store as _, Wanted};
use tokio::time::timeout;

use super::bench::{Bench, ends};

async fn comes(hints: &mut Hints) -> Option<Hint> {
    let hint = timeout(Duration::from_secs(10), hints.next());
    hint.await.expect("a hint in time")
}

#[tokio::test]
async fn what_is_new_and_what_ends_is_hinted_at_but_no_claim_and_no_renewal() {
    let bench = Bench::new().await;
    let Some(mut hints) = bench.store.changes(Wanted::ALL).await.unwrap() else {
        // A standalone server has no change streams, and the store says so.
        let info = bench.store.open().await.unwrap();
        assert!(info.description.contains("standalone"), "{info:?}");
        return;
    };
    bench.insert(bench.record("new")).await;
    assert_eq!(comes(&mut hints).await, Some(Hint::Due(bench.now)));
    bench.held("born-leased").await;
    let claimed = bench.store.claim(bench.request()).await.unwrap();
    let holds = vec![("new".into(), "t1".to_owned())];
    bench
        .store
        .renew(RenewRequest {
            owner: "w1".to_owned(),
            holds,
            until: bench.at(20_000),
        })
        .await
        .unwrap();
    let silence = timeout(Duration::from_millis(500), hints.next()).await;
    assert!(silence.is_err(), "nothing is to be done after these");
    assert!(matches!(
        bench.commit(&ends(&claimed.records[0])).await,
        Committed::Done
    ));
    assert_eq!(comes(&mut hints).await, Some(Hint::Ended("new".into())));
}

#[tokio::test]
async fn the_stream_ends_quietly() {
    let bench = Bench::new().await;
    let Some(hints) = bench.store.changes(Wanted::ALL).await.unwrap() else {
        return;
    };
    bench.scratch.database().drop().await.unwrap();
    assert!(
        timeout(Duration::from_secs(10), hints.count())
            .await
            .is_ok(),
        "the collection is gone, and so is the stream"
    );
}
