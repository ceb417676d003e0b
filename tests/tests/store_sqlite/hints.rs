//! Hints that something has changed.

use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use milestone_runtime::store::{Hint, Hints, Store, Wanted, sqlite::SqliteStore};

use crate::support::{LEASE, commit, end, held, insert, later, opened, record};

async fn hint(hints: &mut Hints) -> Option<Hint> {
    tokio::time::timeout(Duration::from_secs(10), hints.next())
        .await
        .expect("a hint in time")
}

#[tokio::test]
async fn they_come_from_this_store_and_from_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let (store, other) = (opened(&path).await, opened(&path).await);
    let now = store.now().await.expect("the time");
    let mut hints = store
        .changes(Wanted::ALL)
        .await
        .expect("changes")
        .expect("hints");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(hints.next().now_or_never().is_none(), "nothing has changed");
    insert(&store, record("a", now)).await;
    assert_eq!(hint(&mut hints).await, Some(Hint::Changed));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        hints.next().now_or_never().is_none(),
        "one change, one hint"
    );
    let begin = Instant::now();
    insert(&other, record("b", now)).await;
    assert_eq!(hint(&mut hints).await, Some(Hint::Changed));
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    drop(store);
    assert_eq!(
        hint(&mut hints).await,
        None,
        "the stream ends with the store"
    );
}

#[tokio::test]
async fn they_tell_what_is_due_or_has_ended_only() {
    let store = SqliteStore::memory("m").expect("a store");
    store.open().await.expect("it opens");
    let now = store.now().await.expect("the time");
    let mut hints = store
        .changes(Wanted::ALL)
        .await
        .expect("changes")
        .expect("hints");
    let one = held("a", now, "w1");
    insert(&store, one.clone()).await;
    let until = later(now, 2 * LEASE);
    let request = milestone_runtime::store::RenewRequest {
        owner: "w1".to_owned(),
        holds: vec![("a".into(), "token-of-w1".to_owned())],
        until,
    };
    assert!(
        store
            .renew(request)
            .await
            .expect("a renewal")
            .lost
            .is_empty()
    );
    assert!(
        hints.next().now_or_never().is_none(),
        "nobody waits for that"
    );
    assert!(matches!(
        commit(&store, end(&one)).await,
        milestone_runtime::store::Committed::Done
    ));
    assert_eq!(hint(&mut hints).await, Some(Hint::Changed));
}
